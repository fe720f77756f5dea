"""The tasks: what a batch asks, and that held-out batches are none that is trained on."""

import numpy as np
import pytest

from regard import RegardError
from regard.training import TASKS, make_task, text_task
from regard.training.batches import IGNORED


def answers(task, batch):
    """Return each text of a batch, and what is to be predicted in it."""

    def words(row):
        return [task.tokenizer.backend.id_to_token(int(i)) for i in row]

    for ids, targets in zip(batch.ids, batch.targets, strict=True):
        yield words(ids), words(targets[targets != IGNORED])


@pytest.mark.parametrize("name", TASKS)
def test_a_batch_is_that_of_its_seed_and_number(name):
    task = make_task(name, batch_size=4)
    one, same, other = task.batches(1)(5), task.batches(1)(5), task.batches(1)(6)
    assert np.array_equal(one.ids, same.ids)
    assert one.ids.shape != other.ids.shape or not np.array_equal(one.ids, other.ids)
    assert max(batch.ids.max() for batch in (one, *task.held_out())) < task.tokenizer.vocab_size


@pytest.mark.parametrize(("name", "solve"), [("reverse", lambda x: x[::-1]), ("sort", sorted)])
def test_words(name, solve):
    task = make_task(name, batch_size=8)
    for text, answer in answers(task, task.batches(0)(0)):
        assert answer == list(solve(text[: text.index("=")]))


def test_brackets_are_closed():
    task = make_task("brackets", batch_size=8)
    for text, answer in answers(task, task.batches(0)(0)):
        opened = []
        for sign in [*text[: text.index("=")], *answer[:-1]]:
            if sign in "([{<":
                opened.append(sign)
            else:
                assert opened.pop() + sign in ("()", "[]", "{}", "<>")
        assert not opened
        assert answer[-1] == "."


def test_sums_that_are_held_out_are_not_trained_on():
    task = make_task("addition", batch_size=8)
    trained, held = ({(*row,) for i in range(20) for row in source(i).ids[:, [0, 2]]}
                     for source in (task.batches(0), lambda i: task.held_out(20)[i]))  # fmt: skip
    assert trained
    assert held
    assert not trained & held
    for text, (answer,) in answers(task, task.batches(0)(0)):
        assert (int(text[0]) + int(text[2])) % 59 == int(answer)
    many = make_task("addition", batch_size=200)  # more than there are sums
    assert len(many.batches(0)(0).ids) == len(many.held_out(1)[0].ids) == 1600


def test_induction_repeats_what_can_be_known():
    task = make_task("induction", batch_size=4)
    batch = task.batches(0)(0)
    length = (batch.ids.shape[1] + 1) // 2
    assert all(len(set(row[:length])) == length for row in batch.ids.tolist())
    for row, targets in zip(batch.ids, batch.targets, strict=True):
        assert (targets[:length] == IGNORED).all()
        assert np.array_equal(targets[length:], row[1:length])


def test_masks():
    task = text_task("The cat sat on the mat. " * 200, masked=True, context=32)
    batch = task.batches(0)(0)
    chosen = batch.targets != IGNORED
    mask = task.tokenizer.backend.token_to_id("<mask>")
    assert 0.1 < chosen.mean() < 0.25
    assert 0.65 < (batch.ids[chosen] == mask).mean() < 0.95
    assert (batch.ids[~chosen] != mask).all()


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: make_task("nothing"), "no task"),
        (lambda: text_task("too short"), "needs more than"),
        (lambda: make_task("reverse", batch_size=0), "batch_size"),
        (lambda: make_task("reverse").batches(-1), "seed must be"),
        (lambda: make_task("reverse").new_model(-1), "seed must be"),
        (
            lambda: text_task("the cat, sat!", tokenizer=make_task("induction").tokenizer),
            r"no token for 4 of the 13 characters .* \(' ', '!', ','\)",
        ),
    ],
)
def test_errors(call, said):
    with pytest.raises(RegardError, match=said):
        call()


def test_what_a_tokenizer_is_meant_to_leave_out_is_not_refused(minilm):
    text = "a cat sat. " * 300
    assert text_task(text, tokenizer=text_task(text, bpe=300).tokenizer)
    assert text_task("thecatsat" * 100, tokenizer=make_task("induction").tokenizer)
    assert text_task("1 + 2 = 3 " * 300, tokenizer=make_task("addition").tokenizer)  # split at blanks
    assert text_task("a café, a cafe\u0301, a cat\n" * 200, tokenizer=minilm.tokenizer)
