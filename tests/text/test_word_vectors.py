import gzip
import tracemalloc
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, strategies as st

from regard import RegardError
from regard.text import Vocabulary, WordTokenizer, WordVectors, read_word_vectors

EMBED_DIM = 5


def glove(rows):
    return b"".join(b"%s %s\n" % (word, b" ".join(map(decimal, vector))) for word, vector in rows)


def header(rows):
    return b"%d %d\n" % (len(rows), len(rows[0][1]))


def word2vec_text(rows):
    """As the C program writes it, with a space before the end of each line."""
    return header(rows) + glove(rows).replace(b"\n", b" \n")


def word2vec_binary(rows, end=b"\n"):
    """As the C program writes it, with a line break after each vector."""
    return header(rows) + b"".join(b"%s %s%s" % (word, vector.astype("<f4").tobytes(), end) for word, vector in rows)


def word2vec_binary_unbroken(rows):
    """As the Google News vectors are, with nothing after each vector."""
    return word2vec_binary(rows, b"")


def decimal(number):
    return repr(float(number)).encode()


FORMATS = [glove, word2vec_text, word2vec_binary, word2vec_binary_unbroken]
BINARY = FORMATS[2:]

# No white space in a word (GloVe's words with spaces have their own test) and not the pair of numbers of a header.
word = st.text(st.characters(exclude_categories=["Cs", "Z", "Cc"]), min_size=1, max_size=13)
number = st.floats(width=32, allow_nan=False, allow_infinity=False)
tables = st.lists(
    st.tuples(word, st.lists(number, min_size=EMBED_DIM, max_size=EMBED_DIM)),
    min_size=3,
    max_size=7,
    unique_by=lambda row: row[0],
)


def as_rows(table):
    return [(word.encode(), np.array(vector, dtype=np.float32)) for word, vector in table]


def some_rows(count=11):
    draw = np.random.default_rng(3)
    return [(b"word%d" % i, draw.standard_normal(EMBED_DIM).astype(np.float32)) for i in range(count)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("vectors")


@pytest.fixture
def read(tmp_path):
    def read(content, words=None):
        path = tmp_path / "vectors"
        path.write_bytes(content)
        return read_word_vectors(path, words)

    return read


@pytest.fixture
def refusal(read, tmp_path):
    """Return the message with which a content is refused, without the file's name that it starts with."""

    def refusal(content, words=None):
        with pytest.raises(RegardError) as caught:
            read(content, words)
        start = f"cannot read word vectors from {tmp_path / 'vectors'}: "
        assert str(caught.value).startswith(start)
        assert "\n" not in str(caught.value)
        return str(caught.value).removeprefix(start)

    return refusal


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize("write", FORMATS)
@given(table=tables)
def test_every_format_gives_back_the_words_and_bits_that_were_written(folder, write, pack, table):
    path = folder / "vectors"
    path.write_bytes(pack(write(as_rows(table))))
    vectors = read_word_vectors(path)
    assert vectors.words == tuple(word for word, _ in table)
    assert vectors.vectors.dtype == np.float32
    np.testing.assert_array_equal(
        vectors.vectors.view(np.uint32), np.array([vector for _, vector in table], np.float32).view(np.uint32)
    )


@pytest.mark.parametrize("write", FORMATS)
@given(table=tables, data=st.data())
def test_only_the_words_asked_for_are_kept(folder, write, table, data):
    path = folder / "vectors"
    path.write_bytes(write(as_rows(table)))
    everything = read_word_vectors(path)
    wanted = data.draw(st.lists(st.one_of(word, st.sampled_from(everything.words)), max_size=5))
    assert read_word_vectors(path, []).vectors.shape == (0, EMBED_DIM)
    some = read_word_vectors(path, wanted)
    assert some.words == tuple(word for word in everything.words if word in wanted)
    np.testing.assert_array_equal(some.vectors, everything.vectors_for(some.words))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"the 1 2\n. . . 4 5\nat name@domain.com 7 8\nat 9 10\n", ("the", ". . .", "at name@domain.com", "at")),
        (b". . . 4 5\nthe 1 2\n", (". . .", "the")),  # words of this kind are in glove.840B.300d
        (b"7 1 2\n0.5 4 5\n", ("7", "0.5")),
        (b"\xef\xbb\xbfthe\t1\t2\r\n\r\ncat  4 5\r\n\n", ("the", "cat")),
    ],
    ids=["spaces", "spaces first", "numbers", "line ends, tabs and a byte order mark"],
)
def test_unusual_words_and_lines_of_glove(read, content, words):
    vectors = read(content)
    assert (vectors.words, vectors.embed_dim) == (words, 2)
    for word, row in zip(words, vectors.vectors, strict=True):
        np.testing.assert_array_equal(read(content, [word]).vectors, [row])
    np.testing.assert_array_equal(sorted(vectors.vectors[:2].tolist()), [[1, 2], [4, 5]])


def test_characters_that_are_spaces_or_line_ends_only_in_unicode_belong_to_the_word(read):
    words = ("\xa0", "a\u2028b", "\x85", "\u3000")
    assert read("".join(f"{word} 1 2\n" for word in words).encode()).words == words


def test_which_rows_count(read):
    for words in (None, ["cat"]):
        vectors = read(b"cat 1 2\ndog 3 4\ncat 5 6\n", words)  # the first of a word
        np.testing.assert_array_equal(vectors.vectors_for(["cat"]), [[1, 2]])
    assert read(b"cat 1 2\ndog 3 4\ncat bad line\n", ["dog", "cat"]).words == ("cat", "dog")  # all are found
    rounded = np.array([[0.1, 0, 16777216]], np.float32)
    np.testing.assert_array_equal(read(b"cat 0.1 1e-46 16777217\n").vectors, rounded)


@pytest.mark.parametrize("write", FORMATS)
def test_a_word_that_is_not_utf8_is_kept_under_a_visible_name(read, write):
    vectors = read(write([(b"caf\xc3", np.arange(5)), (b"ok", np.ones(5))]))
    assert vectors.words == ("caf\\xc3", "ok")


def test_numbers_of_other_words_are_counted_but_not_read(read):
    assert read(b"cat 1 2\nfox bad line\ndog 3 4\n", ["dog"]).words == ("dog",)
    assert read(b"cat 1 2\n. . . 1 2\ndog\t3 4\n", ["dog"]).words == ("dog",)
    with pytest.raises(RegardError, match=r"line 2 \('fox'\) has 1 numbers, the rows have 2"):
        read(b"cat 1 2\nfox 1\ndog 3 4\n", ["dog"])
    with pytest.raises(RegardError, match=r"line 3 \('fox 1'\) has 3 numbers, the rows have 2"):
        read(b"cat 1 2\n\nfox 1 2 3\ndog 3 4\n", ["dog"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"cat 1 2 3\ndog 1 2\n", "line 2 ('dog') has 2 numbers, the rows have 3"),
        (b"cat 1 2 3\n\ndog 1 2 3 4\n", "line 3 ('dog 1') has 4 numbers, the rows have 3"),
        (b"cat 1 2 3\n1 2 3\n", "line 2 ('1') has 2 numbers, the rows have 3"),
        (b"cat 1 2 3\ndog 1 x 3\n", "line 2 ('dog') has 'x', which is not a number"),
        (b"cat 1 x 3\n", "line 1 ('cat 1 x') has 2 numbers, the rows have 1"),
        (b"cat 1 2 3\ndog 1 nan 3\n", "line 2 ('dog') has 'nan', which is not a finite float32"),
        (b"cat nan 2 3\n", "line 1 ('cat') has 'nan', which is not a finite float32"),
        (b"cat 1 2 3\ndog 1 -inf 3\n", "line 2 ('dog') has '-inf', which is not a finite float32"),
        (b"cat 1 2 3\ndog 1 2 1e39\n", "line 2 ('dog') has '1e39', which is not a finite float32"),
        (b"cat 1 2 3\ndog \xff 2 3\n", "line 2 ('dog') has '�', which is not a number"),
        (b"cat dog\n", "line 1 ('cat dog\\n') has 0 numbers after its word; 1 to 65536 can be read"),
        (b"\n", "line 1 ('\\n') has 0 numbers after its word; 1 to 65536 can be read"),
        (b"cat" + b" 1" * 65537, "has 65537 numbers after its word; 1 to 65536 can be read"),
        (b"2 3\ncat 1 2 3\ndog 1 2\n", "line 3 ('dog') has 2 numbers, the rows have 3"),
        (b"2 3\ncat 1 2\ndog 1 2 3\n", "line 2 ('cat') has 2 numbers, the rows have 3"),
        (b"2 3\n\ncat 1 2 3\ndog 1 y 3\n", "line 4 ('dog') has 'y', which is not a number"),
        (b"3 2\ncat 1 2\ndog 1 2\n", "its header announces 3 words, but it has 2"),
        (b"1 2\ncat 1 2\ndog 1 2\n", "its header announces 1 words, but it has 2"),
        (b"3 2\n", "its header announces 3 words, but it has 0"),
        (b"9" * 4999 + b" 2\ncat 1 2\n", "line 2 ('cat 1') has 2 numbers, the rows have 1"),
        (b"0 2\n", "its header announces 0 words of 2 numbers; at least 1 word and 1 to 65536 numbers can be read"),
        (b"2 0\n", "its header announces 2 words of 0 numbers"),
        (b"", "it is empty"),
        (b"\xef\xbb\xbf", "it is empty"),
        (b"PK\x03\x04\x14\x00", "it is a zip archive; unpack it and give the file inside"),
        (bytes(range(256)), "numbers after its word"),
    ],
)
def test_a_malformed_text_file_is_refused_with_the_line(refusal, content, message):
    assert message in refusal(content)


@given(st.sampled_from([b"", b"2 3\n", b"\x1f\x8b", b"\x1f\x8b\x08\0"]), st.binary())
def test_no_content_raises_anything_but_a_refusal(folder, start, rest):
    (folder / "vectors").write_bytes(start + rest)
    with suppress(RegardError):
        vectors = read_word_vectors(folder / "vectors")
        assert np.isfinite(vectors.vectors).all()


@pytest.mark.parametrize("write", BINARY)
def test_a_binary_file_is_refused_wherever_it_is_cut(refusal, write):
    content = write(some_rows(3)).removesuffix(b"\n")
    for length in range(content.index(b"\n") + 1, len(content)):
        assert refusal(content[:length])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (word2vec_binary(some_rows(7))[:-4], "word 7 of 7 ('word6') is truncated: 17 of 20 bytes"),
        (word2vec_binary(some_rows(7))[:-24], "it ends before word 7 of 7 is complete"),
        (b"3 5\n" + b"\x80" * (1 << 18), "word 1 of 3 is longer than 65536 bytes"),
        (b"x" * (1 << 23), "line 1 is longer than 4194304 bytes: not a file of word vectors"),
    ],
    ids=["cut in a vector", "cut before a word", "a word without end", "a line without end"],
)
def test_what_does_not_end_is_refused(refusal, content, message):
    assert refusal(content).startswith(message)


@pytest.mark.parametrize(
    ("promised", "message"),
    [
        (b"10 5", "its header announces 10 words, but has more: 'word10 "),
        (b"12 5", "it ends before word 12 of 12 is complete"),
    ],
)
@pytest.mark.parametrize("write", BINARY)
def test_a_binary_header_that_promises_another_number_of_words_is_refused(refusal, write, promised, message):
    assert refusal(write(some_rows(11)).replace(b"11 5", promised)).startswith(message)


@pytest.mark.parametrize("strange", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("write", BINARY)
def test_a_binary_number_that_is_not_finite_is_refused_with_its_word(refusal, write, strange):
    rows = some_rows()
    rows[6][1][3] = strange
    assert refusal(write(rows)) == "word 7 of 11 ('word6') has a number that is not finite"


@pytest.mark.parametrize("cut", [5, 40, -9, -1])
@pytest.mark.parametrize("place", [101, -5])  # in the data, in the checksum
def test_a_cut_or_damaged_gzip_file_is_refused(refusal, cut, place):
    packed = bytearray(gzip.compress(glove(some_rows())))
    assert refusal(bytes(packed[:cut]))
    packed[place] ^= 0x55
    assert refusal(bytes(packed))


BOMBS = {
    "blank lines": b"a 1\n" + b"\n" * (1 << 24),
    "the same word": (b"a" + b" 1" * 10 + b"\n") * (1 << 19),
    "long lines": (b"a 1" + b" " * (1 << 22) + b"\n") * 4,
    "a binary word": b"1 1\n" + b"\0" * (1 << 24),
}


@pytest.mark.parametrize("words", [None, ["b"]])
@pytest.mark.parametrize("bomb", BOMBS)
def test_a_gzip_file_that_expands_too_much_is_refused_before_it_is_unpacked(tmp_path, monkeypatch, bomb, words):
    read, unpacked = gzip.GzipFile.read, []

    def counted(self, size=-1):
        unpacked.append(len(content := read(self, size)))
        return content

    monkeypatch.setattr(gzip.GzipFile, "read", counted)
    path = tmp_path / "vectors.gz"
    path.write_bytes(gzip.compress(BOMBS[bomb]))
    assert path.stat().st_size < 50_000
    with pytest.raises(RegardError, match=r"expands to more than 1,\d{3},\d{3} bytes|is longer than"):
        read_word_vectors(path, words)
    assert 0 < sum(unpacked) < 5_000_000  # of 16 MB; of a line without end, 4 MiB


def test_a_gzip_file_of_many_zeros_says_how_to_read_it(tmp_path):
    """One-hot vectors compress like a bomb; uncompressed they are read."""
    rows = b"".join(b"w%d" % i + b" 0" * i + b" 1" + b" 0" * (999 - i) + b"\n" for i in range(1000))
    path = tmp_path / "vectors.gz"
    path.write_bytes(gzip.compress(rows))
    with pytest.raises(RegardError, match=r"more than 1,048,576 bytes.*unpack it and give the file inside$"):
        read_word_vectors(path)
    path.write_bytes(rows)
    np.testing.assert_array_equal(read_word_vectors(path).vectors, np.eye(1000))


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    for path, reason in (
        (tmp_path / "gone", "No such file or directory"),
        (tmp_path, "Is a directory"),
        ("a\0b", "embedded null byte"),
    ):
        with pytest.raises(RegardError, match=f"^cannot read word vectors from {path}: {reason}$"):
            read_word_vectors(path)


def peak_memory(function, *arguments):
    tracemalloc.start()
    try:
        result = function(*arguments)
        return result, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def stored(content):
    """Compress nothing: equal rows would expand too much."""
    return gzip.compress(content, compresslevel=0)


@pytest.mark.parametrize("pack", [bytes, stored])
@pytest.mark.parametrize("write", [glove, word2vec_text, word2vec_binary])
def test_memory_grows_with_the_words_asked_for_not_with_the_file(tmp_path, write, pack):
    vector = np.random.default_rng(7).standard_normal(53)
    path = tmp_path / "vectors"
    path.write_bytes(pack(write([(b"word%d" % i, vector) for i in range(10007)])))
    vectors, peak = peak_memory(read_word_vectors, path, ["word9973", "word3", "missing"])
    assert vectors.words == ("word3", "word9973")
    assert peak < 1_000_000  # unpacked, the binary file has 2.2 MB, the others 11 MB


@pytest.mark.parametrize("header", [b"%d 3\n" % 10**12, b"3 %d\n" % 10**12, b"%d %d\n" % (10**12, 65536)])
@pytest.mark.parametrize("rest", [b"", b"cat 1 2 3\n", b"cat \x00\x01\x02\x03"])
def test_a_header_cannot_make_the_reader_allocate_what_it_promises(tmp_path, header, rest):
    path = tmp_path / "vectors"
    path.write_bytes(header + rest)

    def read():
        with pytest.raises(RegardError):
            read_word_vectors(path)

    assert peak_memory(read)[1] < 10_000_000


def test_vectors_are_of_words_that_are_there(read):
    vectors = WordVectors(Vocabulary(("cat", "sat")), np.array([[1, 2, 3], [4, 5, 6]], np.float32))
    np.testing.assert_array_equal(vectors.vectors_for(["sat", "cat", "sat"]), [[4, 5, 6], [1, 2, 3], [4, 5, 6]])
    assert vectors.vectors_for([]).shape == (0, 3)
    with pytest.raises(RegardError, match=r"^no vector for 'Cat', 'dog'; lookup is case-sensitive"):
        vectors.vectors_for(["Cat", "sat", "dog", "Cat"])
    for call in (lambda: vectors.vectors_for("ab"), lambda: read(glove(some_rows()), "word1 word2")):
        with pytest.raises(RegardError, match="split it first"):
            call()
    for shape in ((3, 5), (2,), (1, 2, 5)):
        with pytest.raises(RegardError, match=r"2 words need vectors of shape \(2, embed_dim\), got \("):
            WordVectors(Vocabulary(("cat", "sat")), np.ones(shape, np.float32))


def test_vectors_may_be_plain_lists_of_finite_numbers():
    vectors = WordVectors(Vocabulary(("cat",)), [[1, 2]])
    np.testing.assert_array_equal(vectors.vectors_for(["cat"]), [[1.0, 2.0]])
    with pytest.raises(RegardError, match="finite real numbers"):
        WordVectors(Vocabulary(("cat",)), [[1.0, np.inf]])


def test_a_tokenizer_made_of_the_vectors_gives_the_rows_of_its_tokens(read):
    vectors = read(b"the 1 2\ncat 3 4\n")
    encoding = WordTokenizer(vectors.vocabulary, unknown="drop")("The big cat")
    np.testing.assert_array_equal(vectors.vectors[list(encoding.ids)], vectors.vectors_for(encoding.tokens))
