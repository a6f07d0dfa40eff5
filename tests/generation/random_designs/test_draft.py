import random

from captcha_ocr.generation.random_designs.draft import DesignDraft


def test_a_draft_draws_ranges_in_order():
    draft = DesignDraft(random.Random(1), 1)
    for low, high in [draft.part(-0.5, 0.5) for _ in range(50)] + [
        draft.whole_part(3, 9) for _ in range(50)
    ]:
        assert low <= high


def test_a_disturbance_is_as_likely_as_the_draft_says():
    assert [DesignDraft(random.Random(1), disturb).disturbs(1) for disturb in (0, 1)] == [
        False,
        True,
    ]


def test_an_operator_is_appended_with_its_fields():
    draft = DesignDraft(random.Random(1), 1)
    draft.add("blur", sigma=1)
    draft.add("smooth")
    assert draft.operators == [{"kind": "blur", "sigma": 1}, {"kind": "smooth"}]
