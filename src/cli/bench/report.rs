//! What a bench prints: one JSON object, or a few lines.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::Serialize;

use super::procs::Usage;
use crate::cli::table::thousands;

/// Latency of single requests, milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Latency {
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub p999_ms: f64,
    pub max_ms: f64,
}

impl Latency {
    /// From a histogram of microseconds; zeros when it is empty.
    pub fn of(micros: &Histogram<u64>) -> Latency {
        let ms = |value: u64| value as f64 / 1000.0;
        Latency {
            p50_ms: ms(micros.value_at_quantile(0.5)),
            p99_ms: ms(micros.value_at_quantile(0.99)),
            p999_ms: ms(micros.value_at_quantile(0.999)),
            max_ms: ms(micros.max()),
        }
    }
}

/// The result of a produce or consume run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Report {
    pub what: &'static str,
    pub topic: String,
    pub brokers: Vec<String>,
    pub connections: u32,
    pub in_flight: u32,
    /// Messages of a request (send) or asked for by a pull.
    pub messages_a_request: u32,
    /// Bytes of a body; for a read run the mean.
    pub body_bytes: u64,
    pub seconds: f64,
    pub messages: u64,
    pub messages_per_s: f64,
    /// Body bytes, 10^6 a second.
    pub mb_per_s: f64,
    pub latency: Latency,
    /// Replies by code.
    pub codes: BTreeMap<i32, u64>,
    /// The first remark of each code but 0.
    pub remarks: BTreeMap<i32, String>,
    pub errors: BTreeMap<String, u64>,
    pub unanswered: u64,
    /// CPU of this program per message.
    pub own_cpu_us_per_message: f64,
    pub processes: Vec<Usage>,
    /// CPU of all `--pids` together per message.
    pub cpu_us_per_message: Option<f64>,
}

impl Report {
    /// The lines for a terminal.
    pub fn text(&self) -> String {
        let mut lines = vec![
            format!(
                "{} {} on {}: {} connections x {} in flight, {} x {} bytes a request, {:.1} s",
                self.what,
                self.topic,
                self.brokers.join(", "),
                self.connections,
                self.in_flight,
                self.messages_a_request,
                self.body_bytes,
                self.seconds
            ),
            format!(
                "  {} msg/s  {:.1} MB/s  ({} messages)",
                thousands(self.messages_per_s.round() as u64),
                self.mb_per_s,
                thousands(self.messages)
            ),
            format!(
                "  request latency ms: p50 {:.3}  p99 {:.3}  p99.9 {:.3}  max {:.3}",
                self.latency.p50_ms, self.latency.p99_ms, self.latency.p999_ms, self.latency.max_ms
            ),
            format!("  replies: {}", self.codes_text()),
        ];
        for (code, remark) in &self.remarks {
            lines.push(format!("    code {code}: {remark}"));
        }
        if self.unanswered > 0 {
            lines.push(format!("  unanswered requests: {}", self.unanswered));
        }
        for (error, count) in &self.errors {
            lines.push(format!("  {count} x {error}"));
        }
        if let Some(cpu) = self.cpu_us_per_message {
            lines.push(format!(
                "  CPU of the processes together: {cpu:.2} us a message"
            ));
        }
        for process in &self.processes {
            lines.push(format!(
                "    pid {}: {:.2} us a message, {:.1} MiB resident",
                process.pid,
                process.cpu_us_per_message,
                process.rss_bytes as f64 / (1024.0 * 1024.0)
            ));
        }
        lines.push(format!(
            "  CPU of this program: {:.2} us a message",
            self.own_cpu_us_per_message
        ));
        lines.join("\n")
    }

    fn codes_text(&self) -> String {
        if self.codes.is_empty() {
            return "none".to_string();
        }
        let parts: Vec<String> = self
            .codes
            .iter()
            .map(|(code, count)| format!("code {code}: {}", thousands(*count)))
            .collect();
        parts.join(", ")
    }

    /// Prints the report as asked.
    pub fn print(&self, json: bool) {
        match serde_json::to_string(self) {
            Ok(text) if json => println!("{text}"),
            _ => println!("{}", self.text()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_shows_rates_codes_errors_and_processes() {
        let report = Report {
            what: "produce",
            topic: "T".into(),
            brokers: vec!["h:1".into()],
            connections: 64,
            in_flight: 16,
            messages_a_request: 1,
            body_bytes: 1024,
            seconds: 2.0,
            messages: 160_000,
            messages_per_s: 80_000.0,
            mb_per_s: 81.92,
            latency: Latency {
                p50_ms: 1.5,
                p99_ms: 4.0,
                p999_ms: 9.25,
                max_ms: 12.0,
            },
            codes: BTreeMap::from([(0, 160_000), (14, 3)]),
            remarks: BTreeMap::from([(14, "disk full".to_string())]),
            errors: BTreeMap::from([("h:1: broken".to_string(), 2)]),
            unanswered: 5,
            own_cpu_us_per_message: 3.25,
            processes: vec![Usage {
                pid: 7,
                cpu_us_per_message: 6.5,
                rss_bytes: 40 * 1024 * 1024,
            }],
            cpu_us_per_message: Some(6.5),
        };
        assert_eq!(
            report.text(),
            "produce T on h:1: 64 connections x 16 in flight, 1 x 1024 bytes a request, 2.0 s\n  \
             80,000 msg/s  81.9 MB/s  (160,000 messages)\n  \
             request latency ms: p50 1.500  p99 4.000  p99.9 9.250  max 12.000\n  \
             replies: code 0: 160,000, code 14: 3\n    \
             code 14: disk full\n  \
             unanswered requests: 5\n  \
             2 x h:1: broken\n  \
             CPU of the processes together: 6.50 us a message\n    \
             pid 7: 6.50 us a message, 40.0 MiB resident\n  \
             CPU of this program: 3.25 us a message"
        );
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["codes"]["14"], 3);
        assert_eq!(json["latency"]["p999_ms"], 9.25);
    }
}
