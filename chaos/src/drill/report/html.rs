//! The report for people: one page with everything in it, so that it opens from a disk, a mail or a ticket.

use super::Report;

const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPTS: [&str; 3] = [
    include_str!("page.js"),
    include_str!("timeline.js"),
    include_str!("runs.js"),
];

/// The page.
pub fn page(report: &Report) -> String {
    // Inside of a script element only `<` could end it; in JSON it only occurs in texts.
    let data = serde_json::to_string(report)
        .unwrap_or_else(|error| format!("{{\"error\":\"{error}\"}}"))
        .replace('<', "\\u003c");
    PAGE.replace("{{STYLE}}", STYLE)
        .replace("{{SCRIPT}}", &SCRIPTS.join("\n"))
        .replace("{{DATA}}", &data)
}
