"""Recording a computation: traces, attention maps, interventions."""

from regard.functional.recorder import NULL_RECORDER, Recorder
from regard.trace.attention_map import AttentionMap
from regard.trace.steps import Step
from regard.trace.stored_map import StoredMap, open_map
from regard.trace.trace import Edit, Trace

__all__ = ["NULL_RECORDER", "AttentionMap", "Edit", "Recorder", "Step", "StoredMap", "Trace", "open_map"]
