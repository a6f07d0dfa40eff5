import json
import math

from audit.samples import make_results


def test_results_are_json_without_infinities_and_with_the_keys_of_every_version(images):
    made = make_results(sorted(images.glob("*.png"))[:3])
    assert made.needed["random"][1].value == math.inf
    results = json.loads(json.dumps(made.to_dict(), allow_nan=False))
    assert results["needed"]["random"][1] == [None, None, None]
    assert [*results] == [
        *("source", "definition", "alphabet", "lengths", "case_ignored", "images", "tested"),
        *("samples", "tricks", "attacks", "best", "curves", "needed", "coverage", "knobs"),
        *("people", "verdict", "failures", "notes", "seed", "budget_s", "environment", "spent_s"),
    ]
    assert results["best"]["labels"] == 100
    assert set(results["best"]) == {
        *("start", "labels", "images", "share", "interval", "training_s", "cost")
    }
    assert results["curves"]["random"] == [
        {"labels": 100, "right": [290, 300, 310], "tested": 1000}
    ]
    assert results["coverage"]["rows"][0].keys() == {"coverage", "images", "right", "interval"}
    assert set(results["tricks"]) == {
        *("images", "repeated", "in_files", "in_names", "most_frequent", "skewed", "even_guess"),
        *("by_characters", "texts_are_given", "copies", "unreadable", "best_guess", "findings"),
    }
