"""The names of `regard.models`, without the class and the configuration of each family, `Bert` and `BertConfig`."""

from typing import Any

from regard.models.base import (
    Model as Model,
    PretrainedModel as PretrainedModel,
    TextModel as TextModel,
)
from regard.models.circuits import Circuits as Circuits
from regard.models.deepseek_v3 import (
    LatentAttention as LatentAttention,
    SharedAndRoutedExperts as SharedAndRoutedExperts,
)
from regard.models.encoder import TaskOutput as TaskOutput
from regard.models.encoder_decoder import EncoderDecoderOutput as EncoderDecoderOutput
from regard.models.families import (
    FAMILIES as FAMILIES,
    load as load,
    register as register,
)
from regard.models.generation.decoding_state import DecodingState as DecodingState
from regard.models.generation.loop import (
    Generated as Generated,
    Stream as Stream,
)
from regard.models.gpt_oss import Experts as Experts
from regard.models.images.model import (
    ImageModel as ImageModel,
    ImageOutput as ImageOutput,
)
from regard.models.images.processor import ImageProcessor as ImageProcessor
from regard.models.language import LanguageModel as LanguageModel
from regard.models.mixtral import MixtureOfExperts as MixtureOfExperts
from regard.models.output import (
    Output as Output,
    PooledOutput as PooledOutput,
)
from regard.models.pooling import Pooling as Pooling
from regard.models.predictions import Prediction as Prediction
from regard.models.task_heads import (
    Classifier as Classifier,
    MaskedWordHead as MaskedWordHead,
)
from regard.models.toy import (
    Toy as Toy,
    ToyConfig as ToyConfig,
    toy as toy,
)

def __getattr__(name: str) -> Any: ...
