"""Pretrained transformers, one readable file for each family, run in NumPy.

`load` turns a name or a folder into a `Model`; calling it with a text returns its contextual vectors, and
`regard.Trace` looks inside.
"""

from regard.models._load import FAMILIES, load
from regard.models._model import Model, Output
from regard.models.bert import Bert, BertConfig
from regard.models.distilbert import DistilBert, DistilBertConfig
from regard.models.roberta import Roberta, RobertaConfig
from regard.models.toy import Toy, ToyConfig, toy

__all__ = [
    "load",
    "Model",
    "Output",
    "FAMILIES",
    "Bert",
    "BertConfig",
    "DistilBert",
    "DistilBertConfig",
    "Roberta",
    "RobertaConfig",
    "Toy",
    "ToyConfig",
    "toy",
]
