"""Timelines of a Python program."""
import json
import threading

import millrace


def events_of(path, kind):
    return [event for event in json.loads(path.read_text()) if event["ph"] == kind]


def test_spans_and_the_clock_are_written(client, tmp_path):
    path = tmp_path / "trainer.json"
    with millrace.Trace(path, [client], process="train") as trace:
        with trace.span("step", batch=0x10000000002):
            with trace.span("forward"):
                pass
    forward, step = events_of(path, "X")
    assert (forward["name"], step["name"]) == ("forward", "step")
    assert step["args"] == {"batch": "0x10000000002"} and "args" not in forward
    assert step["ts"] <= forward["ts"]
    assert forward["ts"] + forward["dur"] <= step["ts"] + step["dur"] + 0.001
    facts = {event["name"]: event["args"] for event in events_of(path, "M")}
    assert facts["process_name"] == {"name": "train", "spans_left_out": 0}
    assert facts["process_clock"]["clock"] == hex(client.clock_offset().own_clock)
    assert facts["process_clock"]["offsets"] == []  # one machine, one clock


def test_each_thread_is_a_track_and_a_failing_block_is_a_span(tmp_path):
    path = tmp_path / "trainer.json"
    with millrace.Trace(path) as trace:

        def run():
            try:
                with trace.span("fails"):
                    raise ValueError
            except ValueError:
                pass

        thread = threading.Thread(target=run)
        with trace.span("here"):
            thread.start()
            thread.join()
    assert {event["name"]: event["tid"] for event in events_of(path, "X")} == {"fails": 0, "here": 1}


def test_spans_beyond_the_bound_are_counted(tmp_path):
    path = tmp_path / "trainer.json"
    with millrace.Trace(path, max_spans=2) as trace:
        for _ in range(5):
            with trace.span("step"):
                pass
    trace.close()  # again
    assert len(events_of(path, "X")) == 2
    (name,) = (event for event in events_of(path, "M") if event["name"] == "process_name")
    assert name["args"]["spans_left_out"] == 3
