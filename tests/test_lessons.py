"""The five lessons: the code of each in a few lines as the oracle, and its faults.

In sections 000 to 004, like `examples/`. The numbers come from NumPy's old generator, which the lessons seed with
``np.random.seed``: `np.random.RandomState` draws the same.
"""

import numpy as np
import pytest

from regard import Trace, attention, nn, softmax
from regard.text import Vocabulary, WordTokenizer


def traced(layer, x):
    """Return the layer's output and everything on the way to it."""
    trace = Trace()
    return layer(x, trace=trace), trace


# 000: three words with four whole numbers each, step by step


def lesson_000(embeddings, w_q, w_k, w_v):
    q, k, v = embeddings @ w_q, embeddings @ w_k, embeddings @ w_v
    scores = q @ k.T / np.sqrt(w_k.shape[1])
    weights = softmax_000(scores)
    return weights @ v, weights


def softmax_000(x):
    return np.exp(x) / np.sum(np.exp(x), axis=-1, keepdims=True)


WORDS_000 = np.array([[1, 0, 1, 0], [0, 1, 0, 1], [1, 1, 0, 0]])

# With √3 · ln 2 in the queries the scaled scores are whole multiples of ln 2, and the weights powers of two over
# their sum: numbers for pen and paper. The keys are the three unit vectors, so a word's query is its row of scores.
W_Q_000 = np.sqrt(3) * np.log(2) * np.array([[3, 0, 0], [0, 0, 0], [-3, 1, 2], [1, 0, 1]])
W_K_000 = np.array([[0, 0, 1], [0, 0, 0], [1, 0, -1], [0, 1, 0]])
W_V_000 = np.array([[1, 0, 2], [0, 3, 0], [0, 1, 0], [2, 0, 1]])


def test_000_weights_and_output_by_hand():
    output, trace = traced(nn.SelfAttention.from_weights(W_Q_000, W_K_000, W_V_000), WORDS_000)
    np.testing.assert_array_equal(trace["v"][0], [[1, 1, 2], [2, 3, 1], [1, 3, 2]])
    np.testing.assert_allclose(trace["scores"][0] / np.log(2), [[0, 1, 2], [1, 0, 1], [3, 0, 0]], atol=1e-15)
    np.testing.assert_allclose(
        trace["weights"][0], [[1 / 7, 2 / 7, 4 / 7], [2 / 5, 1 / 5, 2 / 5], [8 / 10, 1 / 10, 1 / 10]], rtol=1e-15
    )
    np.testing.assert_allclose(output, [[9 / 7, 19 / 7, 12 / 7], [1.2, 2.2, 1.8], [1.1, 1.4, 1.9]], rtol=1e-15)


def test_000_softmax_without_a_shift_is_nan_at_scores_of_1000_and_ours_is_not():
    scores = np.array([[1000.0, 1000.0, 0.0]])
    with np.errstate(over="ignore", invalid="ignore"):
        assert np.isnan(softmax_000(scores)[0, :2]).all()
    np.testing.assert_array_equal(softmax(scores), [[0.5, 0.5, 0]])


def test_000_attention_with_scores_of_1000_is_nan_there_and_right_here():
    x = np.array([[1000.0, 0], [0, 1000.0]])
    eye = np.eye(2) * 2**0.25  # scores are x · xᵀ: 1000² on the diagonal, 0 beside it
    with np.errstate(over="ignore", invalid="ignore"):
        assert np.isnan(lesson_000(x, eye, eye, np.eye(2))[0]).any()
    np.testing.assert_array_equal(nn.SelfAttention.from_weights(eye, eye, np.eye(2))(x), x)


# 001: nine words, two heads, seed 42

SENTENCE_001 = "The quick brown fox jumps over the lazy dog"
EMBEDDINGS_001 = np.array(
    [
        [1.0, 0.5, 0.2, 0.8],
        [0.3, 1.0, 0.7, 0.1],
        [0.6, 0.2, 1.0, 0.4],
        [0.9, 0.8, 0.3, 1.0],
        [0.4, 0.6, 0.8, 0.2],
        [0.7, 0.3, 0.5, 0.9],
        [1.0, 0.5, 0.2, 0.8],
        [0.2, 0.9, 0.4, 0.6],
        [0.8, 0.4, 0.9, 0.3],
    ]
)
POSITIONS_001 = np.array([[p, 10 - p, p, 10 - p] for p in range(9)]) / 10
PRINTED_INPUT_001 = [
    [1.0, 1.5, 0.2, 1.8],
    [0.4, 1.9, 0.8, 1.0],
    [0.8, 1.0, 1.2, 1.2],
    [1.2, 1.5, 0.6, 1.7],
    [0.8, 1.2, 1.2, 0.8],
    [1.2, 0.8, 1.0, 1.4],
    [1.6, 0.9, 0.8, 1.2],
    [0.9, 1.2, 1.1, 0.9],
    [1.6, 0.6, 1.7, 0.5],
]
PRINTED_OUTPUT_001 = [
    [0.34494302, -0.16594008, -0.49273973, -0.51357179],
    [0.34647487, -0.15909348, -0.4852738, -0.50635228],
    [0.34336687, -0.15293441, -0.48028235, -0.50077979],
    [0.34598795, -0.16394967, -0.48996047, -0.51109125],
    [0.34236345, -0.15115023, -0.47936929, -0.49953431],
    [0.34188169, -0.15456373, -0.48264006, -0.50284664],
    [0.33998404, -0.15521293, -0.4845477, -0.50426322],
    [0.34235727, -0.15255953, -0.480753, -0.50093792],
    [0.33840776, -0.14368761, -0.47391596, -0.49318787],
]
EIGHT_DIGITS = 0.5e-8


def weights_001():
    random = np.random.RandomState(42)
    w_q, w_k, w_v = (random.randn(2, 4, 2) * 0.3 for _ in range(3))
    return w_q, w_k, w_v, random.randn(4, 4) * 0.3


def softmax_001(x):
    exp_x = np.exp(x - np.max(x))
    return exp_x / np.sum(exp_x, axis=1, keepdims=True)


def lesson_001(x, w_q, w_k, w_v, w_o):
    """Return every intermediate of the notebook, each with the heads in front."""
    steps = {name: [] for name in ("q", "k", "v", "scores", "weights", "context")}
    for head in range(len(w_q)):
        q, k, v = x @ w_q[head], x @ w_k[head], x @ w_v[head]
        scores = q @ k.T / np.sqrt(w_q.shape[2])
        weights = softmax_001(scores)
        for name, value in zip(steps, (q, k, v, scores, weights, weights @ v), strict=True):
            steps[name].append(value)
    steps["output"] = np.concatenate(steps["context"], axis=1) @ w_o
    return {name: np.array(value) for name, value in steps.items()}


def test_001_tokens_weights_steps_and_output_are_the_printed_ones():
    encoding = WordTokenizer.from_text(SENTENCE_001, lowercase=False)(SENTENCE_001)
    assert encoding.tokens == ("The", "quick", "brown", "fox", "jumps", "over", "the", "lazy", "dog")
    x = nn.Embedding(EMBEDDINGS_001)(encoding.ids) + POSITIONS_001
    np.testing.assert_allclose(x, PRINTED_INPUT_001, rtol=1e-15)
    w_q, w_k, w_v, w_o = weights_001()  # as seed 42 draws them
    np.testing.assert_allclose(w_q[0, 0], [0.14901425, -0.04147929], rtol=0, atol=EIGHT_DIGITS)
    np.testing.assert_allclose(w_k[1, 3], [-0.18051198, 0.55568346], rtol=0, atol=EIGHT_DIGITS)
    np.testing.assert_allclose(w_v[1, 3], [-0.13819163, 0.31713667], rtol=0, atol=EIGHT_DIGITS)
    np.testing.assert_allclose(w_o[2, :3], [-0.25176526, -0.09276371, 0.09937903], rtol=0, atol=EIGHT_DIGITS)
    output, trace = traced(nn.SelfAttention.from_weights(w_q, w_k, w_v, w_o), EMBEDDINGS_001 + POSITIONS_001)
    np.testing.assert_allclose(output, PRINTED_OUTPUT_001, rtol=0, atol=EIGHT_DIGITS)
    steps = lesson_001(EMBEDDINGS_001 + POSITIONS_001, w_q, w_k, w_v, w_o)
    for name, width in {"q": 2, "k": 2, "v": 2, "scores": 9, "weights": 9, "context": 2}.items():
        assert trace[name].shape == (2, 9, width)
        np.testing.assert_allclose(trace[name], steps[name], rtol=1e-13)


def test_001_softmax_with_one_shift_for_all_rows_loses_a_row_800_lower_and_ours_does_not():
    scores = np.array([[0.0, np.log(3)], [-800.0, -800.0]])
    with np.errstate(invalid="ignore"):
        assert np.isnan(softmax_001(scores)[1]).all()
    np.testing.assert_allclose(softmax(scores), [[0.25, 0.75], [0.5, 0.5]], rtol=1e-15)


def test_001_attention_keeps_a_token_whose_scores_are_800_lower():
    x = np.array([[1.0, 1, 3], [-800.0, 1, 5]])  # the columns are query, key and value
    w_q, w_k, w_v = np.eye(3)[:, None, :, None]  # 1 3 1 each
    with np.errstate(invalid="ignore"):
        assert np.isnan(lesson_001(x, w_q, w_k, w_v, np.eye(1))["output"][1]).all()
    np.testing.assert_array_equal(nn.SelfAttention.from_weights(w_q, w_k, w_v)(x), [[4], [4]])


# 002: a batch of one text, six words of eight numbers

TOKENS_002 = ["The", "cat", "sat", "on", "the", "mat"]
PRINTED_ROW_002 = [0.0129619, 0.0088241, 0.00291238, 0.89626405, 0.07590556, 0.00313201]


def lesson_002(x, w_q, w_k, w_v):
    """Return scores, weights and output. ``np.dot`` pairs every query with the keys of every text: B T B S."""
    q, k, v = np.dot(x, w_q), np.dot(x, w_k), np.dot(x, w_v)
    scores = np.dot(q, np.transpose(k, (0, 2, 1))) / np.sqrt(w_k.shape[1])
    exponentials = np.exp(scores - np.max(scores, axis=-1, keepdims=True))
    weights = exponentials / np.sum(exponentials, axis=-1, keepdims=True)
    return scores, weights, np.dot(weights, v)


def ours_002(x, w_q, w_k, w_v):
    trace = Trace()
    output = attention(x @ w_q, x @ w_k, x @ w_v, trace=trace)
    return trace["scores"], trace["weights"], output


@pytest.fixture
def matrices_002(rng):
    return rng.random((3, 8, 8))


def test_002_one_text_has_scores_1_6_6_and_the_lessons_values(rng, matrices_002):
    x = rng.random((1, 6, 8))
    for ours, theirs in zip(ours_002(x, *matrices_002), lesson_002(x, *matrices_002), strict=True):
        assert theirs.shape[:3] == (1, 6, 1)
        assert ours.shape[:2] == (1, 6)
        np.testing.assert_allclose(ours, theirs.reshape(ours.shape), rtol=1e-12)


def test_002_with_two_texts_np_dot_compares_the_queries_of_one_with_the_keys_of_the_other(rng, matrices_002):
    x = rng.random((2, 6, 8))
    scores, _, _ = lesson_002(x, *matrices_002)
    assert scores.shape == (2, 6, 2, 6)
    w_q, w_k, _ = matrices_002
    np.testing.assert_allclose(scores[0, :, 1], (x[0] @ w_q) @ (x[1] @ w_k).T / np.sqrt(8), rtol=1e-13)


def test_002_with_two_texts_each_is_what_it_is_alone_and_not_in_the_lesson(rng, matrices_002):
    x = rng.random((2, 6, 8))
    for together, first, second in zip(
        ours_002(x, *matrices_002), lesson_002(x[:1], *matrices_002), lesson_002(x[1:], *matrices_002), strict=True
    ):
        assert together.shape[:2] == (2, 6)
        np.testing.assert_allclose(together[0], first[0, :, 0].reshape(6, -1), rtol=1e-12)
        np.testing.assert_allclose(together[1], second[0, :, 0].reshape(6, -1), rtol=1e-12)
    other = np.stack([x[0], rng.random((6, 8))])
    assert not np.allclose(lesson_002(x, *matrices_002)[1][0], lesson_002(other, *matrices_002)[1][0])
    np.testing.assert_array_equal(ours_002(x, *matrices_002)[2][0], ours_002(other, *matrices_002)[2][0])


def test_002_the_printed_row_is_a_softmax_in_which_the_first_token_attends_to_on():
    row = softmax(np.log(PRINTED_ROW_002))
    np.testing.assert_allclose(row, PRINTED_ROW_002, rtol=0, atol=6 * EIGHT_DIGITS)  # six printed entries
    assert TOKENS_002[row.argmax()] == "on"


# 003: text to embeddings, four heads, what the context does to a word

VOCABULARY_003 = {"the": 0, "cat": 1, "sat": 2, "on": 3, "mat": 4}
TEXT_003 = "The cat sat on the mat"


def embeddings_003(text, vocabulary, table):
    """Return the rows and the labels: the lesson drops an unknown word from the first only."""
    tokens = text.lower().split()
    return table[[vocabulary[token] for token in tokens if token in vocabulary]], tokens


def weights_003(dtype):
    """Return the lesson's four projections and its table of embeddings, standard normal float32."""
    random = np.random.RandomState(3)
    drawn = [random.randn(rows, 128).astype(np.float32) for rows in (128, 128, 128, 128, 5)]
    return [array.astype(dtype) for array in drawn]


def lesson_003(x, w_q, w_k, w_v, w_o, num_heads):
    batch, length, width = x.shape
    q, k, v = (
        (x @ w).reshape(batch, length, num_heads, width // num_heads).transpose(0, 2, 1, 3) for w in (w_q, w_k, w_v)
    )
    scores = q @ k.transpose(0, 1, 3, 2) / (width // num_heads) ** 0.5
    exponentials = np.exp(scores - np.max(scores, axis=-1, keepdims=True))
    weights = exponentials / np.sum(exponentials, axis=-1, keepdims=True)
    return (weights @ v).transpose(0, 2, 1, 3).reshape(batch, length, width) @ w_o, weights


def test_003_text_becomes_the_lessons_embeddings():
    *_, table = weights_003(np.float32)
    encoding = WordTokenizer(Vocabulary.from_mapping(VOCABULARY_003))(TEXT_003)
    rows, labels = embeddings_003(TEXT_003, VOCABULARY_003, table)
    assert list(encoding.tokens) == labels
    np.testing.assert_array_equal(nn.Embedding(table)(encoding.ids), rows)


def test_003_the_lessons_weights_give_the_lessons_numbers():
    *weights, table = weights_003(np.float64)
    x = table[[[0, 1, 2, 3, 0, 4]]]
    output, trace = traced(nn.SelfAttention.from_weights(*weights, num_heads=4), x)
    theirs, their_weights = lesson_003(x, *weights, num_heads=4)
    assert output.shape == (1, 6, 128)
    np.testing.assert_allclose(trace["weights"], their_weights, rtol=0, atol=1e-12)
    np.testing.assert_allclose(output, theirs, rtol=0, atol=1e-10)  # entries are about 100


# 003, its example: "bank" with a model that has learned what words mean

RIVER = (
    "They sat on the bank of the river and watched the water.",
    "The fisherman walked along the muddy bank to his boat.",
    "Willow trees grow on the left bank of the stream.",
    "The canoe drifted to the far bank, where reeds stood in the water.",
    "After the flood the bank of the river had washed away.",
)
MONEY = (
    "She opened a savings account at the bank in town.",
    "The bank approved his loan at a low interest rate.",
    "He went to the bank to deposit his salary.",
    "The central bank raised interest rates to slow inflation.",
    "Robbers stole a million in cash from the bank.",
)


def bank(model, sentence):
    """Return the word's vector before and after the model: the mean over its sub-words."""
    trace = Trace(only="token_embeddings")
    output = model(sentence, trace=trace)
    (positions,) = [at for word, at in output.encodings[0].word_groups() if word == "bank"]
    return trace["token_embeddings"][0, positions].mean(0), output.hidden[0, positions].mean(0)


@pytest.fixture(scope="module")
def banks(minilm):
    """Return the original and the contextual vectors, river first, ``2 10 E``."""
    return np.swapaxes([bank(minilm, sentence) for sentence in RIVER + MONEY], 0, 1)


@pytest.mark.minilm
def test_003_every_bank_is_nearer_to_those_of_its_sense_than_to_those_of_the_other(banks):
    unit = banks[1] / np.linalg.norm(banks[1], axis=-1, keepdims=True)
    cosines = unit @ unit.T
    river = np.arange(10) < len(RIVER)
    same = river == river[:, None]
    own, other = cosines[same & ~np.eye(10, dtype=bool)].reshape(10, 4), cosines[~same].reshape(10, 5)
    assert (own.mean(-1) > other.mean(-1)).all()
    assert (own.max(-1) > other.max(-1)).all()


@pytest.mark.minilm
def test_003_bank_is_one_vector_before_the_model_and_another_in_every_sentence_after_it(banks):
    original, contextual = banks
    assert (original == original[0]).all()
    assert len(np.unique(contextual, axis=0)) == len(RIVER + MONEY)


# 004: the equation as a class, seed 42

OUTPUT_004 = [
    [-0.01035515757801, -0.27415779963802, -0.14408015937518, -0.20593842879485,
     0.02155266885090, 0.06036594182581, 0.00967804111738, -0.18386666035224],
    [-0.01214498943794, -0.22997054364924, -0.13112746911855, -0.18788542271650,
     0.03592951619103, 0.04071389957987, 0.01025642976903, -0.17372143299652],
    [-0.00617918917835, -0.22060670106378, -0.12805948214075, -0.17880954056442,
     0.02524985689207, 0.05583657226736, 0.00274534524380, -0.16358427431473],
    [-0.00930350884960, -0.26194581699193, -0.14036100093297, -0.19973441120817,
     0.02230098065316, 0.05933739682957, 0.00821298115692, -0.17942075005269],
]  # fmt: skip
WEIGHTS_004 = [
    [0.23477084998748, 0.26403108880626, 0.24610060221612, 0.25509745899014],
    [0.25656559745149, 0.23464603594330, 0.24361216809710, 0.26517619850811],
    [0.26811613548205, 0.24296142815252, 0.25373331628468, 0.23518912008075],
    [0.24213998678604, 0.25864584951046, 0.24825651333348, 0.25095765037002],
]


def drawn_004():
    """Return x, ``T E``, and the three matrices, ``E D``, in the order in which the lesson draws them."""
    random = np.random.RandomState(42)
    x = random.randn(4, 8)
    return x, [random.randn(8, 8) * 0.1 for _ in range(3)]


def lesson_004(x, w_q, w_k, w_v):
    q, k, v = x @ w_q, x @ w_k, x @ w_v
    scores = q @ k.T / np.sqrt(w_k.shape[1])
    exponentials = np.exp(scores - np.max(scores, axis=-1, keepdims=True))
    weights = exponentials / np.sum(exponentials, axis=-1, keepdims=True)
    return weights @ v, weights


def test_004_output_and_weights():
    x, matrices = drawn_004()
    output, trace = traced(nn.SelfAttention.from_weights(*matrices), x)
    for given, weights in ((output, trace["weights"][0]), lesson_004(x, *matrices)):
        np.testing.assert_allclose(given, OUTPUT_004, rtol=0, atol=1e-12)
        np.testing.assert_allclose(weights, WEIGHTS_004, rtol=0, atol=1e-12)


@pytest.mark.parametrize("num_heads", [2, 4, 8])
def test_004_more_heads_are_the_lesson_for_each_with_its_share_of_the_columns(num_heads):
    x, matrices = drawn_004()
    output, trace = traced(nn.SelfAttention.from_weights(*matrices, num_heads=num_heads), x)
    heads = [
        lesson_004(x, *columns) for columns in zip(*(np.split(w, num_heads, axis=1) for w in matrices), strict=True)
    ]
    np.testing.assert_allclose(output, np.concatenate([out for out, _ in heads], axis=-1), rtol=0, atol=1e-12)
    np.testing.assert_allclose(trace["weights"], [weights for _, weights in heads], rtol=0, atol=1e-12)
