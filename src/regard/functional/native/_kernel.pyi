"""The compiled module; csrc/bindings.cpp."""

import enum

import numpy as np

QUERIES: int
KEYS: int
FEW_ROWS: int
FEW_KEYS: int
PANEL: int

def room(bytes: int) -> np.ndarray: ...
def pack(panels: np.ndarray, weight: np.ndarray, first: int) -> None: ...

class Kind(enum.Enum):
    float32 = ...
    float64 = ...
    float16 = ...
    bfloat16 = ...

class FusedBlockTail:
    def __init__(
        self,
        out: np.ndarray,
        out_bias: np.ndarray | None,
        first_weight: np.ndarray,
        first_bias: np.ndarray,
        first_eps: float,
        up: np.ndarray,
        up_bias: np.ndarray | None,
        bend: object,
        down: np.ndarray,
        down_bias: np.ndarray | None,
        second_weight: np.ndarray,
        second_bias: np.ndarray,
        second_eps: float,
    ) -> None: ...
    def __call__(self, output: np.ndarray, context: np.ndarray, x: np.ndarray) -> None: ...

class Call:
    def __init__(
        self,
        heads: tuple[int, ...],
        kind: Kind,
        q: np.ndarray,
        k: np.ndarray,
        v: np.ndarray | None,
        scale: float,
        softcap: float = 0.0,
        first: np.ndarray | None = None,
        last: np.ndarray | None = None,
        mask: np.ndarray | None = None,
        bias: np.ndarray | None = None,
        diagonal: np.ndarray | None = None,
        sinks: np.ndarray | None = None,
        dropout: int = 0,
        seed: int = 0,
        kept: float = 1.0,
        first_query: int = 0,
        all_queries: int = 0,
        score_heads: tuple[int, ...] | None = None,
    ) -> None: ...

def forward(call: Call, output: np.ndarray | None, highest: np.ndarray | None, total: np.ndarray | None) -> None: ...
def is_few(call: Call) -> bool: ...
def forward_memory(call: Call) -> int: ...
def backward(
    call: Call,
    d_output: np.ndarray,
    output: np.ndarray,
    highest: np.ndarray,
    total: np.ndarray,
    row_sums: np.ndarray,
    d_q: np.ndarray,
    d_k: np.ndarray,
    d_v: np.ndarray,
    d_bias: np.ndarray | None = None,
    d_of_keys: np.ndarray | None = None,
    d_of_queries: np.ndarray | None = None,
    d_diagonal: np.ndarray | None = None,
) -> bool: ...
def look_sums(call: Call, highest: np.ndarray, total: np.ndarray) -> None: ...
def look_tile(
    call: Call,
    stage: int,
    keys: np.ndarray,
    tile: np.ndarray,
    highest: np.ndarray | None = None,
    total: np.ndarray | None = None,
) -> None: ...
def look_rows(
    call: Call,
    highest: np.ndarray,
    total: np.ndarray,
    offset: np.ndarray | None = None,
    entropy: np.ndarray | None = None,
    distance: np.ndarray | None = None,
    best: np.ndarray | None = None,
    best_keys: np.ndarray | None = None,
) -> None: ...
def look_received(call: Call, highest: np.ndarray, total: np.ndarray, received: np.ndarray) -> None: ...
def look_pooled(
    call: Call,
    row_edges: np.ndarray,
    col_edges: np.ndarray,
    mean: bool,
    pooled: np.ndarray,
    highest: np.ndarray,
    total: np.ndarray,
) -> None: ...
def num_threads() -> int: ...
def set_num_threads(count: int) -> None: ...
def instruction_sets() -> list[str]: ...
def instruction_set() -> str: ...
def use_instruction_set(name: str) -> bool: ...
def peak() -> float: ...
