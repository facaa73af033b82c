from __future__ import annotations

from threading import Event, Thread

import pytest

from lmcore.errors import InputError
from ui import job as job_module
from ui.job import Job, Jobs


def test_all_who_wait_get_the_one_result():
    go, runs, got = Event(), [], []

    def work(say):
        runs.append(1)
        go.wait()
        return "done"

    job = Job(work, "test")
    threads = [Thread(target=lambda: got.append(job.wait(lambda line: None))) for _ in range(3)]
    for thread in threads:
        thread.start()
    go.set()
    for thread in threads:
        thread.join()
    assert got == ["done"] * 3
    assert runs == [1]


def test_lines_are_shown_while_waiting():
    seen = Event()

    def work(say):
        say("30 of 272 tensors")
        assert seen.wait(10)

    lines = []
    Job(work, "test").wait(lambda line: (lines.append(line), seen.set()))
    assert lines == ["30 of 272 tensors"]


def test_error_reaches_who_waits():
    def work(say):
        raise ValueError("no such file")

    with pytest.raises(ValueError, match="no such file"):
        Job(work, "test").wait(lambda line: None)


def test_work_outlives_a_watcher_that_leaves_and_serves_the_next():
    go = Event()

    def work(say):
        say("half way")
        go.wait()
        return say("still wanted")

    class Rerun(BaseException):
        pass

    def interrupted(line):
        raise Rerun

    job = Job(work, "test")
    with pytest.raises(Rerun):
        job.wait(interrupted)
    go.set()
    assert job.wait(lambda line: None) is True


def test_work_that_nobody_waits_for_is_told_so(monkeypatch):
    monkeypatch.setattr(job_module, "ABANDONED_AFTER_S", 0.0)
    answer, asked = [], Event()

    def work(say):
        answer.append(say("anyone?"))
        asked.set()

    Job(work, "test")
    assert asked.wait(10)
    assert answer == [False]


def test_jobs_keep_one_of_each_key_and_what_it_raised_until_forgotten():
    go, begun = Event(), []

    def work(say):
        begun.append(1)
        go.wait(20)
        raise InputError("no such thing")

    jobs: Jobs[None] = Jobs("test", abandoned_after_s=60.0)
    for _ in range(3):
        jobs.start("one", work)
    job = jobs.running("one")
    assert job is not None
    assert jobs.failure("one") is None
    assert jobs.running("other") is None
    go.set()
    with pytest.raises(InputError):
        job.wait(lambda line: None)
    assert begun == [1]
    assert jobs.running("one") is None
    assert "no such thing" in str(jobs.failure("one"))
    jobs.forget(lambda key: key == "other")
    assert jobs.failure("one") is not None
    jobs.forget(lambda key: key == "one")
    assert jobs.failure("one") is None
