"""The tokenizers of pretrained models, which split rare words into pieces."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.files import read_file
from regard._utils.packages import needed
from regard._utils.validation import boolean, escape
from regard.text.byte_level import build_byte_level
from regard.text.chat import ChatTemplate
from regard.text.clean_up import clean_up
from regard.text.combining_marks import join_at_marks, join_within_characters
from regard.text.encoding import Encoding
from regard.text.encoding_from_ids import check_ids
from regard.text.gguf_tokenizer import build_from_gguf, special_token
from regard.text.library import check_class, is_plain, library
from regard.text.token_bytes import encode_ids, find_words, is_byte_level, is_sentencepiece
from regard.text.tokenizer_class import (
    NO_ADDED_TOKENS,
    AddedTokens,
    add_in_order,
    added_tokens,
    has_other_rules,
    named_tokens,
    tokenizer_class,
)
from regard.text.tokenizer_config import ClassSettings, TokenizerFiles, read_chat_template, read_settings
from regard.text.tokenizer_json import Growth, check_document, growth_of
from regard.text.tokenizer_rules import (
    FROM_MERGES,
    FROM_VOCAB_TXT,
    by_rule,
    default_extra,
    default_tokens,
    has_rule,
    special_tokens,
)
from regard.text.wordpiece import build_wordpiece
from regard.text.words import check_text, find_tokens, join_names

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_BERT = "BertTokenizer"
MASKS = ("<mask>", "[MASK]")
"""How tokenizers spell the token in the place of a masked word."""


class NoTokenizer(RegardError):
    """A model has no tokenizer."""


@dataclass(frozen=True, eq=False)
class SubwordTokenizer:
    """Splits a text into the tokens of a pretrained model, by the ``tokenizers`` library.

    Parameters
    ----------
    backend
        The library's tokenizer. Its truncation and padding are switched off.
    pad_id
        The id that pads the shorter texts of a batch; None if the vocabulary has none.
    chat_template
        How the messages of a chat become a text; None if the model has none.
    growth
        How much longer its components may make a text.
    cleans_up
        Whether decoded texts lose spaces before punctuation, which a vocabulary of words puts there.

    Examples
    --------
    >>> tokenizer = SubwordTokenizer.from_folder("all-MiniLM-L6-v2")  # doctest: +SKIP
    >>> tokenizer("unbelievably").tokens  # doctest: +SKIP
    ('[CLS]', 'un', '##bel', '##ie', '##va', '##bly', '[SEP]')
    """

    backend: Tokenizer = field(repr=False)
    pad_id: int | None = None
    chat_template: ChatTemplate | None = field(default=None, repr=False)
    growth: Growth = field(default=Growth(), repr=False)
    cleans_up: bool = field(default=False, repr=False)

    def __post_init__(self) -> None:
        self.backend.no_truncation()
        self.backend.no_padding()

    @classmethod
    def from_folder(cls, folder: str | os.PathLike[str]) -> SubwordTokenizer:
        """Read the tokenizer of a model's folder: ``tokenizer.json``, ``vocab.txt``, or ``vocab.json``.

        The first of them is read; ``vocab.json`` comes with ``merges.txt``. ``tokenizer_config.json``, if present,
        names the class that any of them is read as, its settings, and its special and added tokens; the chat template
        is in it or in ``chat_template.jinja``.

        Raises
        ------
        RegardError
            The folder has no such file, or one of them cannot be read or is malformed.
        """
        files = TokenizerFiles(Path(folder))
        tokenizer, kind = cls._from_files(files)
        tokenizer.backend.encode_special_tokens = files.splits_special_tokens
        cleans_up = files.cleans_up_spaces(is_bpe=type(tokenizer.backend.model).__name__ == "BPE")
        tokens = named_tokens(files, {} if kind is None else default_tokens(kind))
        return replace(tokenizer, chat_template=read_chat_template(files, tokens), cleans_up=cleans_up)

    @classmethod
    def _from_files(cls, files: TokenizerFiles) -> tuple[SubwordTokenizer, str | None]:
        """Return the tokenizer, and the class that makes it if its special tokens have defaults."""
        folder = files.folder
        if (content := read_file(path := folder / "tokenizer.json")) is not None:
            kind = tokenizer_class(files, is_byte_level=b'"ByteLevel"' in content)
            if kind is not None and has_other_rules(kind):
                raise NoTokenizer(
                    f"the tokenizer in {folder} is a {kind}, which transformers does not read from tokenizer.json as "
                    f"it is; to read the file as it is all the same, set tokenizer_class to TokenizersBackend in "
                    f"{files.settings_path}"
                )
            tokenizer, settings = cls._from_json(path, content), read_settings(files)
            with _library_errors(f"the tokenizer in {folder} cannot be built"):
                stored = tokenizer.backend.get_added_tokens_decoder()
                has_own = kind is not None and has_rule(kind, tokenizer.backend)
                if kind is not None and has_own and is_plain(tokenizer.backend):
                    check_class(tokenizer.backend, kind, settings, special_tokens(kind, settings).values())
                    has_own = False
                if kind is not None and has_own:
                    added = added_tokens(files, stored, default_extra(kind, settings))
                    backend = by_rule(kind, settings, added, file=tokenizer.backend, content=content)
                    backend.encode("")
                    tokenizer = replace(tokenizer, backend=backend, growth=growth_of(backend))
                else:
                    kind = None
                    added = added_tokens(files, stored)
                    tokenizer.backend.add_tokens(added.listed)
                    add_in_order(tokenizer.backend, added, {})
            pad = settings.tokens.get("pad_token")
            return (replace(tokenizer, pad_id=_pad_id(tokenizer.backend, pad)) if pad else tokenizer), kind
        kind, added = tokenizer_class(files), added_tokens(files)
        if (content := read_file(path := folder / "vocab.txt")) is not None:
            _require(kind, FROM_VOCAB_TXT, path)
            kind = kind or _BERT
            return cls._from_pieces(path, content, kind, read_settings(files), added), kind
        if (content := read_file(path := folder / "vocab.json")) is not None:
            _require(kind, FROM_MERGES, path)
            return cls._from_merges(path, content, kind, read_settings(files), added), kind
        raise NoTokenizer(
            f"no tokenizer in {folder}: it has neither tokenizer.json nor vocab.txt nor vocab.json; transformers "
            f"writes tokenizer.json from other files with save_pretrained(NEW_FOLDER)"
        )

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> SubwordTokenizer:
        """Read a ``tokenizer.json``, which defines its tokenizer completely.

        Raises
        ------
        RegardError
            The file cannot be read or is not a tokenizer.
        """
        return cls._from_json(Path(path), _content(path))

    @classmethod
    def from_wordpiece(
        cls,
        path: str | os.PathLike[str],
        *,
        lowercase: bool = True,
        strip_accents: bool | None = None,
        split_chinese: bool = True,
    ) -> SubwordTokenizer:
        """Read a WordPiece ``vocab.txt``, one piece a line, as BERT does.

        Parameters
        ----------
        path
            The file. It must have ``[UNK]``, ``[CLS]`` and ``[SEP]``.
        lowercase
            Whether the text is lower-cased: True for an "uncased" model.
        strip_accents
            Whether accents are removed; None: as `lowercase`.
        split_chinese
            Whether every Chinese character is a word of its own.

        Raises
        ------
        RegardError
            The file cannot be read, is not UTF-8 or lacks a required token.
        """
        settings = ClassSettings(lowercase, strip_accents, split_chinese)
        return cls._from_pieces(Path(path), _content(path), _BERT, settings)

    @classmethod
    def from_gguf(cls, metadata: Mapping[str, Any], path: str | os.PathLike[str] = "") -> SubwordTokenizer:
        """Build the tokenizer that the metadata of a GGUF file describes.

        Parameters
        ----------
        metadata
            The values by key; ``tokenizer.ggml.*`` and ``tokenizer.chat_template`` are read.
        path
            The file, for messages.

        Raises
        ------
        RegardError
            Its kind or its pre-tokenizer is not supported, or its vocabulary is malformed.
        """
        if metadata.get("tokenizer.ggml.model", "none") in ("none", "no_vocab"):
            raise NoTokenizer(f"no tokenizer in {path}: its metadata have no tokenizer.ggml.model")
        with _library_errors(f"the tokenizer of {path} cannot be built"):
            backend = build_from_gguf(metadata)
            names = {"bos": "bos", "eos": "eos", "unknown": "unk", "padding": "pad"}
            special = {short: special_token(metadata, name) for name, short in names.items()}
            template = metadata.get("tokenizer.chat_template")
            if template is not None and not isinstance(template, str):
                raise RegardError("tokenizer.chat_template must be a string")
        tokens = {f"{short}_token": token[1] for short, token in special.items() if token}
        pad_id = special["pad"][0] if special["pad"] else None
        return cls(backend, pad_id, ChatTemplate(template, tokens) if template else None, growth=growth_of(backend))

    @classmethod
    def _from_json(cls, path: Path, content: bytes) -> SubwordTokenizer:
        with _library_errors(f"{path} is not a tokenizer.json (use from_wordpiece for a vocab.txt)"):
            growth = check_document(content)
            backend = library().Tokenizer.from_buffer(content)
            tokenizer = cls(backend, _pad_id(backend), growth=growth)  # without padding from here on
            backend.encode("")  # some errors appear only now
        return tokenizer

    @classmethod
    def _from_pieces(
        cls, path: Path, content: bytes, kind: str, settings: ClassSettings, added: AddedTokens = NO_ADDED_TOKENS
    ) -> SubwordTokenizer:
        try:
            backend = build_wordpiece(content.decode(), kind, settings, added)
        except (UnicodeDecodeError, RegardError) as error:
            raise RegardError(f"{path} is not a WordPiece vocabulary: {error}") from error
        return cls(backend, _pad_id(backend, special_tokens(kind, settings)["pad_token"]))

    @classmethod
    def _from_merges(
        cls, path: Path, content: bytes, kind: str | None, settings: ClassSettings, added: AddedTokens = NO_ADDED_TOKENS
    ) -> SubwordTokenizer:
        merges = _content(path.with_name("merges.txt"))
        with _library_errors(f"{path} is not a byte-level vocabulary"):
            backend = build_byte_level(content.decode(), merges.decode(), kind, settings, added)
        pad = settings.tokens.get("pad_token")
        if not pad and kind == "CLIPTokenizer":
            pad = settings.tokens.get("eos_token") or "<|endoftext|>"
        return cls(backend, _pad_id(backend, pad), growth=growth_of(backend))

    def __call__(self, text: str) -> Encoding:
        """Return `text` as tokens, with the special tokens that the model expects around it.

        A special token in the text of `text` becomes that token too, but is not marked as special.

        Raises
        ------
        RegardError
            `text` is not a str, has a lone surrogate, or cannot be encoded with the vocabulary.
        """
        return self._encode(text, add_special_tokens=True)

    @cached_property
    def lowercased(self) -> SubwordTokenizer:
        """The tokenizer that lower-cases texts first, as ``do_lower_case`` of sentence-transformers does."""
        if _lowercases(json.loads(self.backend.to_str())["normalizer"]):
            return self
        with needed("lower-casing texts first"):
            from tokenizers import Tokenizer
            from tokenizers.normalizers import Lowercase, Sequence
        backend = Tokenizer.from_str(self.backend.to_str())
        backend.encode_special_tokens = self.backend.encode_special_tokens
        backend.normalizer = Sequence([Lowercase(), *([] if backend.normalizer is None else [backend.normalizer])])
        return replace(self, backend=backend)

    def apply_chat_template(
        self,
        messages: Iterable[Mapping[str, Any]],
        *,
        add_generation_prompt: bool | None = None,
        continue_final_message: bool = False,
        **variables: Any,
    ) -> Encoding:
        """Return the messages of a chat as the tokens that the model was trained on.

        The special tokens are those of the template, with no others around them; a special token in the text of a
        message becomes that token too.

        Parameters
        ----------
        messages
            Mappings with ``role`` (``"system"``, ``"user"``, ``"assistant"``) and ``content``. A key whose value is
            None is as one that is absent.
        add_generation_prompt
            Whether the text ends with the beginning of the model's answer. Default: unless `continue_final_message`.
        continue_final_message
            Whether the text ends where the content of the final message does, so that the model continues it.
        **variables
            Further variables of the template, such as ``tools``.

        Raises
        ------
        RegardError
            The model has no template, the template fails on these messages, or the final message cannot be continued.
        """
        if self.chat_template is None:
            raise RegardError("this tokenizer has no chat template; give the whole text")
        if boolean("continue_final_message", continue_final_message) and add_generation_prompt:
            raise RegardError(
                "a chat is continued in its final message or in a new one: give continue_final_message or "
                "add_generation_prompt"
            )
        variables["add_generation_prompt"] = (
            not continue_final_message if add_generation_prompt is None else add_generation_prompt
        )
        text = self.chat_template.render(messages, variables, continue_final=continue_final_message)
        return self._encode(text, add_special_tokens=False)

    def _encode(self, text: str, *, add_special_tokens: bool) -> Encoding:
        check_text(text)
        with _library_errors("the tokenizer cannot encode the text"):
            self.growth.check(text, self.backend.normalizer)
            encoded = self.backend.encode(text, add_special_tokens=add_special_tokens)
        offsets = encoded.offsets
        if self._drops_characters and self._spells_tokens:
            offsets = find_tokens(text, encoded.tokens, encoded.special_tokens_mask, self._added_tokens)
        words: Sequence[int | None] = encoded.word_ids
        if self._is_sentencepiece:  # which takes a text apart at spaces, or nowhere
            words = find_words(text, offsets, encoded.special_tokens_mask)
        word_ids = join_within_characters(words, offsets)
        return Encoding(
            text=text,
            ids=tuple(encoded.ids),
            tokens=tuple(encoded.tokens),
            special_tokens_mask=tuple(map(bool, encoded.special_tokens_mask)),
            word_ids=join_at_marks(text, word_ids, offsets, byte_level=is_byte_level(self.backend)),
            offsets=tuple(offsets),
        )

    def from_ids(self, ids: Iterable[int]) -> Encoding:
        """Return the encoding of `ids` without a text.

        The text of a byte-level or a SentencePiece vocabulary is what its tokens spell, and words are found in it. Else
        ids have no word boundaries: the text is the tokens joined by spaces, and each is a word unless it is special.

        Raises
        ------
        RegardError
            Some ids are not in the vocabulary; all such are named.
        """
        ids = check_ids(ids, self._has, self.vocab_size)
        special = self.special_ids
        tokens = [self.backend.id_to_token(i) or "" for i in ids]
        return encode_ids(ids, tokens, [i in special for i in ids], self.backend)

    def decode(
        self, ids: Iterable[int], *, skip_special_tokens: bool = True, clean_up_spaces: bool | None = None
    ) -> str:
        """Return the text of `ids`, without special tokens by default.

        Parameters
        ----------
        ids : int
        skip_special_tokens : bool
        clean_up_spaces : bool, optional
            Whether to remove spaces before punctuation. Default: `cleans_up`.

        Raises
        ------
        RegardError
            Some ids are not in the vocabulary; all such are named.
        """
        ids = check_ids(ids, self._has, self.vocab_size)
        with _library_errors("the tokenizer cannot decode the ids"):
            text = self.backend.decode(ids, skip_special_tokens=skip_special_tokens)
        return clean_up(text) if (self.cleans_up if clean_up_spaces is None else clean_up_spaces) else text

    @cached_property
    def _is_sentencepiece(self) -> bool:
        return is_sentencepiece(self.backend)

    @cached_property
    def _added_tokens(self) -> frozenset[str]:
        return frozenset(token.content for token in self.backend.get_added_tokens_decoder().values())

    @property
    def has_exact_offsets(self) -> bool:
        """Whether offsets are where the tokens stand; the library's are not after a character that it drops."""
        return not self._drops_characters or self._spells_tokens

    @cached_property
    def _drops_characters(self) -> bool:
        """Whether characters that the vocabulary lacks become no token."""
        model = self.backend.model
        has_all = is_byte_level(self.backend) or any(getattr(model, x, None) for x in ("unk_token", "byte_fallback"))
        return type(model).__name__ == "BPE" and not has_all

    @cached_property
    def _spells_tokens(self) -> bool:
        """Whether the characters of tokens are those of the text."""
        backend, model = self.backend, self.backend.model
        marks = (getattr(model, name, None) for name in ("continuing_subword_prefix", "end_of_word_suffix"))
        return backend.normalizer is backend.pre_tokenizer is None and not any(marks)

    @property
    def mask_id(self) -> int | None:
        """The token in the place of a masked word; None if the vocabulary has none."""
        return next((i for name in MASKS if (i := self.backend.token_to_id(name)) is not None), None)

    @property
    def vocab_size(self) -> int:
        """The number of tokens, special ones included."""
        return self.backend.get_vocab_size()

    @cached_property
    def token_ids(self) -> np.ndarray:
        """The ids of all tokens, ascending: those from 0 to `vocab_size` − 1 unless the vocabulary has gaps."""
        ids = self.backend.get_vocab().values()
        return np.unique(np.fromiter(ids, np.int64, len(ids)))

    @property
    def special_ids(self) -> frozenset[int]:
        """The ids of special tokens, such as the one for padding."""
        return frozenset(i for i, token in self.backend.get_added_tokens_decoder().items() if token.special)

    @property
    def unk_id(self) -> int | None:
        """The id of the token for what the vocabulary cannot spell; None if it has none."""
        token = getattr(self.backend.model, "unk_token", None)
        return None if not isinstance(token, str) else self.backend.token_to_id(token)

    def token_to_id(self, token: str) -> int | None:
        """Return the id of a token as in the vocabulary (``"##ing"``), None if there is no such token."""
        return self.backend.token_to_id(check_text(token))

    def _has(self, token_id: int) -> bool:
        return 0 <= token_id < 1 << 32 and self.backend.id_to_token(token_id) is not None


def _require(kind: str | None, buildable: tuple[str, ...], path: Path) -> None:
    """Raise `NoTokenizer` for a class whose files alone do not say how it splits a text."""
    if kind is not None and kind not in buildable:
        raise NoTokenizer(
            f"a {escape(kind)} is not built from {path}: of its kind {join_names(buildable)} are; transformers writes "
            "tokenizer.json from other files with save_pretrained(NEW_FOLDER)"
        )


def _lowercases(normalizer: Any) -> bool:
    """Return whether the normalizer of a tokenizer.json lower-cases."""
    if not isinstance(normalizer, dict):
        return False
    is_one = normalizer.get("type") == "Lowercase" or normalizer.get("lowercase") is True
    return is_one or any(map(_lowercases, normalizer.get("normalizers") or ()))


def _pad_id(backend: Tokenizer, pad_token: str | None = None) -> int | None:
    """Return the id of the named padding token, else that of the backend's padding, ``[PAD]`` or ``<pad>``."""
    if pad_token:
        return backend.token_to_id(pad_token)
    if backend.padding is not None:
        return int(backend.padding["pad_id"])
    candidates = (backend.token_to_id(token) for token in ("[PAD]", "<pad>"))
    return next((token_id for token_id in candidates if token_id is not None), None)


def _content(path: str | os.PathLike[str]) -> bytes:
    content = read_file(Path(path))
    if content is None:
        raise RegardError(f"cannot read {path}: No such file or directory")
    return content


@contextmanager
def _library_errors(problem: str) -> Iterator[None]:
    """Turn exceptions of the library into a `RegardError`; its Rust panics derive from BaseException."""
    try:
        with needed("it"):
            yield
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise RegardError(f"{problem}: {escape(' '.join(str(error).split()))}") from error
