//! The history: one suite of tests, run with a `SQLite` file and with a real `PostgreSQL`.

#[path = "../support/postgres.rs"]
#[expect(dead_code, reason = "shared with tests that also freeze it")]
mod postgres;

mod alerts;
mod fixture;
mod hostile;
mod incidents;
mod maintenance;
mod old_and_new;
mod on_postgres;
mod on_sqlite;
mod outbox;
mod past;
mod polls;
mod shapes;
mod test_database;
mod upgrade;

/// Each story twice: as `sqlite::name` and `postgresql::name`.
macro_rules! stories {
    ($($module:ident { $($name:ident),* $(,)? })*) => {
        mod sqlite {
            $($(#[tokio::test]
            async fn $name() {
                crate::$module::$name(crate::test_database::TestDatabase::sqlite()).await;
            })*)*
        }

        mod postgresql {
            $($(#[tokio::test]
            async fn $name() {
                if let Some(database) = crate::test_database::TestDatabase::postgres() {
                    crate::$module::$name(database).await;
                }
            })*)*
        }
    };
}

stories! {
    polls {
        a_stored_poll_is_read_back_unchanged,
        an_answer_stored_twice_counts_once,
        an_answer_of_a_thousand_policies_is_kept,
        a_late_answer_is_kept_and_changes_nothing_newer,
        states_are_what_the_newest_answer_lists,
        looking_back_gives_the_newest_of_each_policy,
        several_store_at_once,
    }
    shapes {
        a_series_is_what_a_slow_model_says,
        a_monitor_that_was_down_shows_a_gap,
        a_gap_across_the_edge_is_a_gap,
        the_finest_resolution_that_fits_is_drawn,
        a_year_draws_across_its_months,
    }
    alerts {
        a_new_staleness_check_is_committed_before_its_first_use,
        an_alert_state_is_added_once,
        a_step_is_committed_as_a_whole,
        an_update_of_an_old_version_is_a_conflict,
        of_two_committers_at_once_one_wins,
        an_event_committed_twice_is_sent_once,
        events_are_found_by_what_they_are_about,
    }
    outbox {
        a_resolution_never_overtakes_its_alert,
        a_dead_sink_delays_no_other,
        a_failed_message_is_due_at_its_next_attempt,
        a_message_scheduled_by_a_clock_that_was_ahead_is_due,
    }
    incidents {
        an_incident_opens_grows_and_closes,
        ends_and_operators_open_no_incident,
    }
    maintenance {
        what_is_too_old_goes_and_what_is_open_stays,
        old_samples_are_thinned_to_the_lowest,
        a_round_is_short_and_the_next_goes_on,
        counters_outlive_their_events,
    }
    hostile {
        texts_are_texts,
        errors_are_cut_and_lose_their_nul,
        silences_come_and_go,
        numbers_at_the_edge_come_back,
    }
    past {
        everything_is_there_after_a_restart,
        a_closed_history_rejects_calls,
    }
}
