"""Training in NumPy: AdamW on models that load as any other.

`train` trains a model on batches; `new_model` draws one. `TASKS` are small problems that need no download.
"""

from regard.training.alice import alice
from regard.training.batches import Batch
from regard.training.log import Step
from regard.training.loop import TrainingResult, train
from regard.training.masked_words import mask_words
from regard.training.optimizer import AdamW
from regard.training.run_folder import checkpoints
from regard.training.schedules import schedule_factor
from regard.training.tasks import TASKS, Task, make_task, text_task
from regard.training.trainable import Trainable, new_model
from regard.training.training_run import Losses, TrainingRun

__all__ = [
    "train",
    "new_model",
    "Trainable",
    "TrainingResult",
    "Step",
    "Batch",
    "AdamW",
    "schedule_factor",
    "checkpoints",
    "TrainingRun",
    "Losses",
    "TASKS",
    "Task",
    "make_task",
    "text_task",
    "alice",
    "mask_words",
]
