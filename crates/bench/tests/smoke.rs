//! Runs a small benchmark from end to end on real engines, so that it keeps working.

use anyhow::Result;
use brokkr_bench::args::Command;
use clap::Parser as _;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_small_bench_of_the_agent_completes_with_all_numbers() -> Result<()> {
    let arguments = "bench agent --only create,drift --objects 60 --rounds 1 --quiet 2s --edits 8 --no-flux";
    let Command::Agent(args) = Command::try_parse_from(arguments.split_whitespace())? else {
        unreachable!("it says agent");
    };
    let results = Box::pin(brokkr_bench::run(&args)).await?.to_json();
    for key in [
        "bare_dryrun_s",
        "bare_create_s",
        "agent_create_s",
        "kubectl_create_s",
        "change_s",
        "change_effective_s",
        "drift_p99_ms",
        "drift_bare_p99_ms",
    ] {
        assert!(results[key].as_f64().is_some_and(|value| value > 0.0), "{key} in {results:#}");
    }
    assert_eq!(results["noop_requests"], 0.0, "{results:#}");
    assert!(results["change_writes"].as_f64().is_some_and(|writes| writes > 0.0), "{results:#}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_small_bench_of_the_broker_completes_and_a_poll_costs_no_statement() -> Result<()> {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let arguments = "bench broker --only polls,submissions,reports,waiting,million,rollout,views --rounds 1 --turn 1s \
                     --agents 50 --waiting 50 --connections 8 --reporters 20 --batch 5 --fleet 1000 --stacks 20 \
                     --view-agents 500 --view-stacks 5";
    let Command::Broker(args) = Command::try_parse_from(arguments.split_whitespace())? else {
        unreachable!("it says broker");
    };
    let figures = Box::pin(brokkr_bench::broker::run(&args)).await?.to_json();
    for key in [
        "poll_cpu_ratio",
        "poll_parsed_cpu_ratio",
        "submit_ratio",
        "submit_ratio_1",
        "report_ratio",
        "report_single_ratio",
        "report_singles_per_commit",
        "restart_s",
        "wake_all_s",
        "rollout_step_ms",
        "rollout_evidence_ms",
        "rollout_poll_cpu_ratio",
        "rollout_poll_engine_cpu_ratio",
        "views_matrix_p99_ms",
        "views_search_p99_ms",
        "views_restart_ratio",
    ] {
        assert!(figures[key].as_f64().is_some_and(|value| value > 0.0), "{key} in {figures:#}");
    }
    // Strict enough to detect one statement per fifty polls, and tolerant of the statements of timers.
    assert!(figures["sql_per_poll"].as_f64().is_some_and(|value| value < 0.02), "{figures:#}");
    assert_eq!(figures["woken_by_a_change_for_10"], 10.0, "{figures:#}");
    let exact = ["begin_woken", "step_wrongly_woken", "complete_woken", "complete_changed"];
    for key in exact.map(|key| format!("rollout_{key}")) {
        assert_eq!(figures[&key], 0.0, "{key} in {figures:#}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f7_a_fleet_that_fails_with_three_causes_sends_three_messages_and_three_recoveries() -> Result<()> {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let arguments = "bench alerts --agents 200 --grace 1s --gather 8s --watch 2s";
    let Command::Alerts(args) = Command::try_parse_from(arguments.split_whitespace())? else {
        unreachable!("it says alerts");
    };
    let figures = Box::pin(brokkr_bench::broker::alerts::run(&args)).await?;
    assert!(figures.missed().is_empty(), "{:?} in {:#}", figures.missed(), figures.to_json());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h2_h9_a_small_rollout_stops_within_its_bound_although_its_leader_is_killed() -> Result<()> {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    // More agents fail than in the published run, so that few steps are enough.
    let arguments =
        "bench rollouts --agents 400 --bad-percent 10 --silent-from-start --soak 1s --no-pause --watch 3s";
    let Command::Rollouts(args) = Command::try_parse_from(arguments.split_whitespace())? else {
        unreachable!("it says rollouts");
    };
    let figures = Box::pin(brokkr_bench::broker::rollouts::run(&args)).await?;
    // Other tests run at the same time, so a take-over may take longer than on a machine of its own.
    let missed: Vec<&str> =
        figures.missed().into_iter().filter(|key| *key != "rollout_take_over_max_s").collect();
    assert!(missed.is_empty(), "{missed:?} in {:#}", figures.to_json());
    Ok(())
}
