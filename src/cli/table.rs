//! Text tables with columns as wide as they need to be.

/// Renders rows below a heading; columns are two blanks apart, no blank at a line's end.
pub(super) fn render(heading: &[&str], rows: &[Vec<String>]) -> String {
    let mut widths: Vec<usize> = heading.iter().map(|h| h.chars().count()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    let heading: Vec<String> = heading.iter().map(|h| h.to_string()).collect();
    for row in std::iter::once(&heading).chain(rows) {
        let mut line = String::new();
        for (width, cell) in widths.iter().zip(row) {
            line.push_str(cell);
            let missing = width - cell.chars().count().min(*width);
            line.extend(std::iter::repeat_n(' ', missing + 2));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// A whole number with a comma between thousands.
pub(super) fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_lines_end_without_blanks() {
        let rows = vec![
            vec!["n0".to_string(), "leader".to_string(), "1".to_string()],
            vec!["node-10".to_string(), "x".to_string(), String::new()],
        ];
        assert_eq!(
            render(&["node", "role", "term"], &rows),
            "node     role    term\nn0       leader  1\nnode-10  x\n"
        );
    }

    #[test]
    fn thousands_get_a_comma() {
        assert_eq!(thousands(0), "0");
        assert_eq!(thousands(999), "999");
        assert_eq!(thousands(1_000), "1,000");
        assert_eq!(thousands(12_345_678), "12,345,678");
    }
}
