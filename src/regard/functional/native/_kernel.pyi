"""The compiled module: csrc/bindings."""

import enum

import numpy as np

BLOCK_QUERIES: int
BLOCK_KEYS: int
SPLITKV_MAX_QUERIES: int
SPLITKV_KEYS: int
NR: int

def acquire_buffer(bytes: int) -> np.ndarray: ...
def keep_buffers(keep: bool) -> None: ...
def pack(panels: np.ndarray, weight: np.ndarray, first_column: int) -> None: ...

class DType(enum.Enum):
    float32 = ...
    float64 = ...
    float16 = ...
    bfloat16 = ...
    int8 = ...

class Activation(enum.Enum):
    identity = ...
    gelu = ...
    gelu_tanh = ...
    silu = ...

def softmax(output: np.ndarray, x: np.ndarray, half_dtype: DType = ...) -> None: ...
def layer_norm(
    output: np.ndarray,
    x: np.ndarray,
    residual: np.ndarray | None,
    weight: np.ndarray | None,
    bias: np.ndarray | None,
    eps: float,
    half_dtype: DType = ...,
) -> None: ...
def rms_norm(
    output: np.ndarray,
    x: np.ndarray,
    residual: np.ndarray | None,
    weight: np.ndarray | None,
    bias: np.ndarray | None,
    eps: float,
    half_dtype: DType = ...,
) -> None: ...
def layer_norm_vjp(
    output: np.ndarray,
    x: np.ndarray,
    d: np.ndarray,
    weight: np.ndarray | None,
    eps: float,
    d_weight: np.ndarray | None,
    d_bias: np.ndarray | None,
    half_dtype: DType = ...,
) -> None: ...
def rms_norm_vjp(
    output: np.ndarray,
    x: np.ndarray,
    d: np.ndarray,
    weight: np.ndarray | None,
    eps: float,
    d_weight: np.ndarray | None,
    d_bias: np.ndarray | None,
    half_dtype: DType = ...,
) -> None: ...
def add(output: np.ndarray, x: np.ndarray, y: np.ndarray, half_dtype: DType = ...) -> None: ...
def column_sums(sums: np.ndarray, x: np.ndarray, half_dtype: DType = ...) -> None: ...
def softmax_stats(stats: np.ndarray, x: np.ndarray, half_dtype: DType = ...) -> None: ...
def scaled_softmax(
    output: np.ndarray, x: np.ndarray, log_sum_exp: np.ndarray, factor: np.ndarray, half_dtype: DType = ...
) -> None: ...
def adamw(
    x: np.ndarray,
    gradient: np.ndarray,
    first: np.ndarray,
    second: np.ndarray,
    decayed: int,
    scale: float,
    decay: float,
    beta1: float,
    beta2: float,
    size_of_step: float,
    root: float,
    eps: float,
) -> None: ...
def square_sum(x: np.ndarray) -> float: ...
def gelu(output: np.ndarray, x: np.ndarray, bias: np.ndarray | None, half_dtype: DType = ...) -> None: ...
def gelu_tanh(output: np.ndarray, x: np.ndarray, bias: np.ndarray | None, half_dtype: DType = ...) -> None: ...
def silu(output: np.ndarray, x: np.ndarray, bias: np.ndarray | None, half_dtype: DType = ...) -> None: ...
def gelu_vjp(output: np.ndarray, x: np.ndarray, d: np.ndarray, half_dtype: DType = ...) -> None: ...
def gelu_tanh_vjp(output: np.ndarray, x: np.ndarray, d: np.ndarray, half_dtype: DType = ...) -> None: ...
def silu_vjp(output: np.ndarray, x: np.ndarray, d: np.ndarray, half_dtype: DType = ...) -> None: ...
def swiglu(
    output: np.ndarray,
    gate: np.ndarray,
    up: np.ndarray,
    gate_bias: np.ndarray | None,
    up_bias: np.ndarray | None,
    half_dtype: DType = ...,
) -> None: ...
def apply_rotary(
    output: np.ndarray,
    x: np.ndarray,
    cos: np.ndarray,
    sin: np.ndarray,
    interleaved: bool,
    half_dtype: DType = ...,
) -> None: ...
def linear(
    output: np.ndarray,
    x: np.ndarray,
    weight: np.ndarray,
    bias: np.ndarray | None,
    activation: Activation = ...,
    quantization: str = ...,
) -> None: ...
def linear_transposed(output: np.ndarray, x: np.ndarray, weight: np.ndarray, quantization: str) -> None: ...

class FusedBlockTail:
    def __init__(
        self,
        out: np.ndarray,
        out_bias: np.ndarray | None,
        attn_norm_weight: np.ndarray,
        attn_norm_bias: np.ndarray,
        attn_norm_eps: float,
        up: np.ndarray,
        up_bias: np.ndarray | None,
        activation: Activation,
        down: np.ndarray,
        down_bias: np.ndarray | None,
        mlp_norm_weight: np.ndarray,
        mlp_norm_bias: np.ndarray,
        mlp_norm_eps: float,
    ) -> None: ...
    def __call__(self, output: np.ndarray, context: np.ndarray, x: np.ndarray) -> None: ...

class EncoderBlock:
    def __init__(self, qkv: np.ndarray, qkv_bias: np.ndarray | None, tail: FusedBlockTail) -> None: ...

class EncoderBlocks:
    def __init__(
        self, num_heads: int, num_kv_heads: int, head_dim: int, scale: float, blocks: list[EncoderBlock]
    ) -> None: ...
    def __call__(
        self, output: np.ndarray, x: np.ndarray, lengths: list[int], weights: list[np.ndarray | None]
    ) -> bool: ...
    def keeps_weights(self, length: int) -> bool: ...

class Dropout:
    def __init__(
        self, threshold: int, seed: int, scale: float, first_query: int, queries: int, heads: tuple[int, ...]
    ) -> None: ...

class VarlenCall:
    def __init__(
        self,
        dtype: DType,
        q: np.ndarray,
        k: np.ndarray,
        v: np.ndarray,
        cu_seqlens_q: np.ndarray,
        cu_seqlens_k: np.ndarray,
        scale: float,
        softcap: float = 0.0,
        key_begin: np.ndarray | None = None,
        key_end: np.ndarray | None = None,
        distance_bias: np.ndarray | None = None,
        block_table: np.ndarray | None = None,
        k_dtype: DType | None = None,
        v_dtype: DType | None = None,
        k_scale: np.ndarray | None = None,
        v_scale: np.ndarray | None = None,
    ) -> None: ...
    def forward(
        self, output: np.ndarray, row_max: np.ndarray | None = None, row_sum: np.ndarray | None = None
    ) -> list[int]: ...
    def backward(
        self,
        d_output: np.ndarray,
        output: np.ndarray,
        row_max: np.ndarray,
        row_sum: np.ndarray,
        delta: np.ndarray,
        d_q: np.ndarray,
        d_k: np.ndarray,
        d_v: np.ndarray,
    ) -> list[int]: ...

class AttentionCall:
    def __init__(
        self,
        heads: tuple[int, ...],
        dtype: DType,
        q: np.ndarray,
        k: np.ndarray,
        v: np.ndarray | None,
        scale: float,
        softcap: float = 0.0,
        key_begin: np.ndarray | None = None,
        key_end: np.ndarray | None = None,
        mask: np.ndarray | None = None,
        mask_blocks: np.ndarray | None = None,
        mask_tiles: np.ndarray | None = None,
        bias: np.ndarray | None = None,
        distance_bias: np.ndarray | None = None,
        sinks: np.ndarray | None = None,
        dropout: Dropout | None = None,
        k_dtype: DType | None = None,
        v_dtype: DType | None = None,
        tiles: bool = False,
    ) -> None: ...
    @property
    def tiles(self) -> str | None: ...

def forward(
    call: AttentionCall,
    output: np.ndarray | None,
    row_max: np.ndarray | None,
    row_sum: np.ndarray | None,
    weights: np.ndarray | None = None,
) -> bool: ...
def keeps_weights(call: AttentionCall) -> bool: ...
def uses_splitkv(call: AttentionCall) -> bool: ...
def forward_memory(call: AttentionCall) -> int: ...
def backward(
    call: AttentionCall,
    d_output: np.ndarray,
    output: np.ndarray,
    row_max: np.ndarray,
    row_sum: np.ndarray,
    delta: np.ndarray,
    d_q: np.ndarray,
    d_k: np.ndarray,
    d_v: np.ndarray,
    d_bias: np.ndarray | None = None,
    d_key_bias: np.ndarray | None = None,
    d_query_bias: np.ndarray | None = None,
    d_distance_bias: np.ndarray | None = None,
) -> bool: ...
def map_softmax_stats(call: AttentionCall, row_max: np.ndarray, row_sum: np.ndarray) -> None: ...
def map_tile(
    call: AttentionCall,
    stage: int,
    keys: np.ndarray,
    tile: np.ndarray,
    row_max: np.ndarray | None = None,
    row_sum: np.ndarray | None = None,
) -> None: ...
def map_row_statistics(
    call: AttentionCall,
    row_max: np.ndarray,
    row_sum: np.ndarray,
    offset: np.ndarray | None = None,
    entropy: np.ndarray | None = None,
    distance: np.ndarray | None = None,
    top_weights: np.ndarray | None = None,
    top_keys: np.ndarray | None = None,
) -> None: ...
def map_column_sums(call: AttentionCall, row_max: np.ndarray, row_sum: np.ndarray, column_sums: np.ndarray) -> None: ...
def map_pooled(
    call: AttentionCall,
    row_edges: np.ndarray,
    col_edges: np.ndarray,
    mean: bool,
    pooled: np.ndarray,
    row_max: np.ndarray,
    row_sum: np.ndarray,
) -> None: ...
def num_threads() -> int: ...
def set_num_threads(count: int) -> None: ...
def instruction_sets() -> list[str]: ...
def instruction_set() -> str: ...
def use_instruction_set(name: str) -> bool: ...
def tile_implementations() -> list[str]: ...
def tiles() -> str: ...
def use_tiles(name: str) -> bool: ...
def fma_peak() -> float: ...
