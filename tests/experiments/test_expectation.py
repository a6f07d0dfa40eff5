from captcha_ocr.experiments.expectation import Expectation


def test_the_more_two_models_agree_the_more_is_expected():
    rising = [Expectation.of(agreement, 1000) for agreement in (0.0, 0.5, 0.9, 0.99, 1.0)]
    assert rising == sorted(rising)
    for expected, low, high in rising:
        assert 0 < low < expected < high < 1


def test_of_fewer_images_less_is_sure():
    few, many = Expectation.of(1.0, 100), Expectation.of(1.0, 1000)
    assert few.expected < many.expected
    assert few.expected - few.expected_low > many.expected - many.expected_low
