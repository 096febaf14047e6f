from tests.functions_page import PAGE, page


def test_page_lists_the_functions_that_the_worker_allows() -> None:
    assert page() == PAGE.read_text(encoding="utf-8"), "run: python -m tests.functions_page"
