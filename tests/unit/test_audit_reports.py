"""What went wrong with audit trails elsewhere, row by row, and the test that holds it here (AUD-01 to AUD-03).

Three tables: ways in which a span is lost silently, points at which something fails, and reports of other projects. A
row says in words what happened, and names the tests of this house that would turn red if it happened here.
"""

import ast
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

import pytest

HOUSE: Final = Path(__file__).parents[2]

RECORDER, HOST = "tests/unit/test_audit_recorder.py", "tests/unit/test_audit_recorder_host.py"
ATTACKS, ENVIRONMENT = "tests/fault/test_audit_attacks.py", "tests/fault/test_environment.py"
PROCESSORS, KILLS = "tests/fault/test_host_processors.py", "tests/fault/test_kill_at_each_step.py"
SINK, DISK = "tests/fault/test_audit_sink_faults.py", "tests/fault/test_audit_sink_disk_faults.py"
D12, D12_FILES = "tests/fault/test_case_d12.py", "tests/fault/test_case_d12_files.py"
D12_COLLECTORS, OTLP = "tests/fault/test_case_d12_collectors.py", "tests/unit/test_audit_otlp_sink.py"
DELIVERY, VOCABULARY = "tests/unit/test_audit_delivery.py", "tests/unit/test_audit_vocabulary.py"
PROOF, PROCESSES = "tests/fault/test_ledger_span_proof.py", "tests/fault/test_ledger_processes.py"
GUARDS, FORK = "tests/fault/test_ledger_guards.py", "tests/fault/test_fork_in_the_middle.py"
REPLACED, WORDS = "tests/fault/test_sink_replace.py", "tests/fault/test_sink_words.py"

LOST_SILENTLY: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    "the SDK is switched off by a variable": (
        (ENVIRONMENT, "test_the_environment_neither_silences_nor_cuts_nor_moves_a_span"),
        (RECORDER, "test_the_environment_changes_no_byte_of_a_span"),
    ),
    "a sampler of the environment, or a parent that was not sampled": (
        (ENVIRONMENT, "test_the_environment_neither_silences_nor_cuts_nor_moves_a_span"),
        (PROCESSORS, "test_the_hosts_own_trace_is_neither_parent_nor_silencer"),
    ),
    "the sampler or configurator of a tracer is exchanged": (
        (HOST, "test_a_tracer_that_was_tampered_with_records_nothing"),
        (ENVIRONMENT, "test_the_environment_neither_silences_nor_cuts_nor_moves_a_span"),
    ),
    "the host's global provider, and its ambient trace": (
        (ATTACKS, "test_a_hosts_global_provider_is_not_asked_and_exchanging_it_changes_nothing"),
        (HOST, "test_the_hosts_ambient_trace_is_no_parent"),
    ),
    "limits on attributes, values, links and events": (
        (ENVIRONMENT, "test_the_environment_neither_silences_nor_cuts_nor_moves_a_span"),
        (RECORDER, "test_the_selftest_passes_here_and_refuses_a_tracer_that_cuts"),
    ),
    "a malformed limit": (
        (ENVIRONMENT, "test_a_malformed_limit_stops_everything_before_anything_is_recorded_or_sent"),
        (RECORDER, "test_a_malformed_limit_is_a_clear_refusal_that_does_not_repeat_it"),
    ),
    "values that the SDK or an encoder drops": (
        (VOCABULARY, "test_a_value_of_another_type_or_form_is_refused"),
        (RECORDER, "test_what_cannot_be_a_span_is_refused_with_its_reason"),
    ),
    "suppressed instrumentation, ours and the host's": (
        (PROCESSORS, "test_the_hosts_own_trace_is_neither_parent_nor_silencer"),
        (OTLP, "test_the_host_s_tracing_is_told_to_look_away_on_this_thread_and_for_as_long_alone"),
    ),
    "a host that seeds its random numbers": (
        (HOST, "test_the_hosts_seeded_random_numbers_give_no_equal_ids"),
        (ATTACKS, "test_a_host_that_reseeds_its_random_numbers_makes_no_two_spans_or_effects_alike"),
    ),
    "resource attributes of the environment": (
        (ENVIRONMENT, "test_the_environment_neither_silences_nor_cuts_nor_moves_a_span"),
    ),
    "a fork, also in the middle of a transaction": (
        (FORK, "test_a_fork_at_a_step_of_a_commit_is_refused_in_the_child_and_sends_once"),
        (FORK, "test_a_fork_at_a_step_of_a_request_is_refused_in_the_child_and_makes_one_effect"),
        (RECORDER, "test_a_forked_child_is_refused"),
        (DISK, "test_a_forked_child_does_not_use_its_parents_file"),
    ),
    "a crash": ((KILLS, "test_kill_9_at_a_step_leaves_one_honest_state_and_never_a_second_effect"),),
    "a host that instruments SQLite": (
        (ATTACKS, "test_a_host_that_instruments_every_connection_to_sqlite_sees_none_of_ours"),
    ),
    "a processor of the host's that changes spans": (
        (PROCESSORS, "test_where_a_span_is_spoilt_nothing_happens_and_nothing_is_sent"),
        (HOST, "test_a_span_that_a_processor_changed_is_not_recorded"),
    ),
}

POINTS_OF_FAILURE: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    "the span is not recorded": (
        (PROCESSORS, "test_where_a_span_is_spoilt_nothing_happens_and_nothing_is_sent"),
        (PROOF, "test_without_a_usable_span_nothing_happens_at_all"),
        (ATTACKS, "test_an_sdk_that_swallows_what_its_processors_say_is_no_span_and_nothing_is_sent"),
    ),
    "a forked child": ((FORK, "test_a_fork_at_a_step_of_a_commit_is_refused_in_the_child_and_sends_once"),),
    "the ledger is full or locked before the commit": (
        (PROCESSES, "test_a_lock_held_beyond_the_wait_is_an_answer_and_not_a_hang"),
        (
            "tests/fault/test_full_disk.py",
            "test_below_the_margin_nothing_new_begins_and_what_was_admitted_ends",
        ),
    ),
    "the commit itself fails": (
        (PROCESSES, "test_a_sync_that_fails_makes_the_commit_uncertain_the_object_dead_and_the_file_whole"),
        (
            "tests/soak/test_uncertain_commits.py",
            "test_after_a_commit_whose_sync_failed_a_fresh_process_reads_what_stays",
        ),
    ),
    "a kill before the commit, after it, and after the sinks": (
        (KILLS, "test_kill_9_at_a_step_leaves_one_honest_state_and_never_a_second_effect"),
        (PROCESSES, "test_a_kill_leaves_exactly_what_was_committed"),
    ),
    "the file is unlinked, replaced, cut or cannot be synced": (
        (SINK, "test_a_file_that_is_not_the_sink_any_more_takes_nothing"),
        (DISK, "test_lines_whose_sync_failed_are_cut_off_and_really_written_again"),
        (D12_FILES, "test_between_admission_and_dispatch_nothing_is_sent"),
    ),
    "a collector says partial, a page, a redirect, an error, or nothing": (
        (D12_COLLECTORS, "test_before_admission_a_lie_of_the_collector_costs_nothing"),
        (D12_COLLECTORS, "test_between_admission_and_dispatch_a_lie_of_the_collector_sends_nothing"),
    ),
    "a kill after the last look, before and after the call": (
        (KILLS, "test_kill_9_while_the_service_works_is_unknown_whatever_it_did"),
    ),
    "the ledger is full after the call": (
        (
            "tests/fault/test_full_disk.py",
            "test_an_outcome_that_meets_a_full_disk_is_recorded_in_the_room_of_the_ballast",
        ),
        (
            "tests/fault/test_full_disk.py",
            "test_without_a_ballast_the_same_outcome_is_unknown_and_never_sent_again",
        ),
    ),
    "a sink dies after the call": (
        (D12, "test_after_the_send_success_is_pending_the_next_dispatch_waits_and_then_it_catches_up"),
        (D12_FILES, "test_after_the_send_success_is_pending_until_the_file_has_it"),
        (
            D12_COLLECTORS,
            "test_after_the_send_a_lie_of_the_collector_leaves_success_pending_and_repeats_nothing",
        ),
    ),
    "the permit is used again": (
        (ATTACKS, "test_a_denial_a_replay_and_a_move_that_there_is_not_each_leave_a_row"),
        (
            "tests/contract/test_ledger_transactions.py",
            "test_a_permit_can_be_used_once_even_by_a_wrong_decision",
        ),
    ),
}

REPORTS: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    "01 an SDK that swallows what on_end raises": (
        (HOST, "test_where_the_sdk_swallows_what_a_processor_raises_the_span_is_complete"),
        (ATTACKS, "test_an_sdk_that_swallows_what_its_processors_say_is_no_span_and_nothing_is_sent"),
    ),
    "02 partial success that counts as success": (
        (OTLP, "test_an_answer_that_is_not_exactly_yes_is_a_no_by_its_own_word"),
        (OTLP, "test_a_redirect_is_not_followed"),
        (OTLP, "test_an_answer_that_does_not_come_costs_the_deadline"),
    ),
    "03 spans lost in forked children": (
        (FORK, "test_a_fork_at_a_step_of_a_request_is_refused_in_the_child_and_makes_one_effect"),
        (DELIVERY, "test_a_forked_child_is_refused"),
    ),
    "04 silent truncation": (
        (ENVIRONMENT, "test_the_environment_neither_silences_nor_cuts_nor_moves_a_span"),
        (RECORDER, "test_a_span_says_everything_that_was_asked_for_and_nothing_else"),
    ),
    "05 a variable that kills private providers": (
        (ENVIRONMENT, "test_the_environment_neither_silences_nor_cuts_nor_moves_a_span"),
    ),
    "06 accepted, and lost later": (
        (OTLP, "test_a_collector_that_dies_after_its_yes_gets_everything_again_on_demand"),
        (D12_COLLECTORS, "test_a_collector_that_lost_everything_after_its_yes_gets_every_span_again"),
    ),
    "07 the audit file is deleted, and serving goes on": (
        (SINK, "test_a_file_that_is_not_the_sink_any_more_takes_nothing"),
        (D12_FILES, "test_before_admission_nothing_is_issued_and_no_permit_is_spent"),
    ),
    "08 a black hole freezes everything": (
        (ATTACKS, "test_while_a_sink_hangs_looking_revoking_and_expiring_go_on"),
        (WORDS, "test_while_a_required_sink_hangs_reading_revoking_and_freezing_go_on"),
        (DELIVERY, "test_a_hanging_sink_does_not_keep_the_process_alive"),
    ),
    "09 a full disk stalls": (
        ("tests/soak/test_no_room.py", "test_a_full_disk_refuses_what_is_new_and_records_what_was_done"),
        (DISK, "test_a_disk_that_fills_up_acknowledges_nothing_and_goes_on_when_there_is_room"),
    ),
    "10 a bad sink blocks the start and cannot be removed": (
        (ATTACKS, "test_with_a_dead_sink_an_issuer_opens_and_shows_everything_and_permits_nothing"),
        (REPLACED, "test_a_sink_that_is_gone_for_good_locks_no_money_for_good"),
    ),
    "11 a caller that gives up aborts the audit": (
        (ATTACKS, "test_a_caller_whose_task_is_cancelled_at_any_step_loses_no_outcome"),
        (DELIVERY, "test_an_interrupted_caller_leaves_a_write_that_ends_as_it_would_have"),
        ("tests/fault/test_claims.py", "test_an_interrupt_while_sending_is_recorded_as_unknown_before_it_goes_on"),
    ),
    "12 a record too large is dropped": (
        (PROOF, "test_a_span_of_exactly_the_largest_size_is_kept"),
        (VOCABULARY, "test_the_largest_span_that_the_vocabulary_allows_for_an_outcome_can_be_recorded"),
    ),
    "13 the audit of the answer fails after the work": (
        (PROCESSORS, "test_an_outcome_whose_span_is_spoilt_stays_admitted_and_becomes_unknown"),
        (D12, "test_every_outcome_is_recorded_without_waiting_for_the_sink"),
    ),
    "14 passwords and tokens in the audit": (
        ("tests/fault/test_canaries.py", "test_no_canary_is_in"),
        ("tests/fault/test_case_d15.py", "test_no_refusal_repeats_what_was_said"),
        ("tests/unit/test_audit_redaction.py", "test_a_secret_before_dispatch_refuses_the_span_and_is_not_repeated"),
    ),
    "15 a slow sink, and memory without end": (
        (ATTACKS, "test_ten_thousand_spans_that_a_sink_does_not_take_need_no_more_memory_than_one"),
        (WORDS, "test_ten_thousand_callers_of_a_hanging_sink_are_refused_at_once_and_none_of_them_is_kept"),
    ),
    "16 an overflow that floods the log": (
        (WORDS, "test_a_sink_that_comes_and_goes_is_one_line_a_minute"),
        ("tests/fault/test_noise.py", "test_what_was_only_counted_is_told_once_a_minute_with_what_it_had_in_common"),
    ),
    "17 loss under load": ((ATTACKS, "test_sixteen_writers_leave_as_many_rows_as_lines_as_leaves"),),
    "18 the failure of recording is not recorded": (
        (WORDS, "test_each_failure_of_a_sink_yields_one_row_and_not_one_a_request"),
    ),
    "19 spans lost by an upgrade": (
        ("tests/fault/test_ledger_upgrade.py", "test_the_upgrade_is_on_record_and_the_sink_takes_it_up"),
        ("tests/fault/test_ledger_upgrade.py", "test_every_row_is_kept"),
    ),
    "20 a sink that nobody waits for blocks": (
        (ATTACKS, "test_a_sink_that_nobody_waits_for_delays_no_dispatch_even_where_it_hangs"),
        (D12_COLLECTORS, "test_a_collector_that_nothing_waits_for_delays_no_dispatch_and_gets_everything_later"),
    ),
    "21 a commit without its audit": (
        (KILLS, "test_kill_9_at_a_step_leaves_one_honest_state_and_never_a_second_effect"),
        ("tests/contract/test_ledger_changes.py", "test_a_change_stands_with_its_span_or_neither_is_there"),
    ),
    "22 denials that vanish with the rollback": (
        (ATTACKS, "test_a_denial_a_replay_and_a_move_that_there_is_not_each_leave_a_row"),
    ),
    "23 one class of events is not sent": (
        (ATTACKS, "test_every_move_of_an_effect_has_one_kind_of_span_and_no_other"),
        ("tests/contract/test_ledger_transactions.py", "test_each_step_adds_exactly_one_span_at_the_next_sequence"),
    ),
    "24 side doors past the audit": (
        (GUARDS, "test_a_guard_fires_on_raw_sql"),
        (GUARDS, "test_there_is_an_attempt_against_every_guard_of_the_live_schema"),
    ),
    "25 a proof that is not wholly checked, an identity taken from the server": (
        ("tests/unit/test_merkle.py", "test_a_proof_with_anything_changed_proves_nothing"),
        ("tests/unit/test_notes.py", "test_the_origin_is_the_name_of_the_key_and_never_the_files_to_choose"),
    ),
    "26 a library that loses commits": (
        ("tests/unit/test_ledger_connection.py", "test_a_library_that_could_lose_commits_is_told_from_one_that_cannot"),
        ("tests/fault/test_ledger_attacks.py", "test_a_trail_that_is_cut_or_grown_is_refused"),
    ),
    "27 the second sync that seems to succeed": (
        (DISK, "test_lines_whose_sync_failed_are_cut_off_and_really_written_again"),
        (DISK, "test_a_disk_whose_syncs_keep_failing_never_acknowledges"),
    ),
    "28 what is old cannot be found": (
        (ATTACKS, "test_an_effect_that_goes_on_for_ten_days_tells_its_whole_story"),
    ),
}  # fmt: skip

ROWS: Final = [
    pytest.param(row, held, id=row)
    for table in (LOST_SILENTLY, POINTS_OF_FAILURE, REPORTS)
    for row, held in table.items()
]


@cache
def _tests_of(file: str) -> frozenset[str]:
    tree = ast.parse((HOUSE / file).read_text(encoding="utf-8"))
    return frozenset(one.name for one in ast.walk(tree) if isinstance(one, ast.FunctionDef))


@pytest.mark.spec("AUD-01", "AUD-02", "AUD-03")
@pytest.mark.parametrize(("row", "held"), ROWS)
def test_a_row_is_held_by_tests_that_there_are(row: str, held: tuple[tuple[str, str], ...]) -> None:
    assert held, row
    assert [(file, name) for file, name in held if name not in _tests_of(file)] == []


def test_every_row_is_there() -> None:
    assert (len(LOST_SILENTLY), len(POINTS_OF_FAILURE)) == (14, 11)
    assert [int(row[:2]) for row in REPORTS] == list(range(1, 29))
