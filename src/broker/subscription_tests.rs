//! Where the filter of a pull comes from: the rules of 24 and 25.

use super::*;

fn pull<'a>(sys_flag: i32, version: i64, text: Option<&'a str>) -> Pull<'a> {
    Pull {
        consumer_group: "g",
        topic: "t",
        queue_id: 0,
        queue_offset: 0,
        max_msg_nums: 32,
        sys_flag,
        commit_offset: 0,
        suspend_timeout_ms: 0,
        sub_version: version,
        subscription: text,
        expression_type: Some("TAG"),
        max_msg_bytes: None,
    }
}

fn known(expression: &str, version: i64) -> Registered {
    Registered {
        group: true,
        broadcasting: false,
        subscription: Some(Arc::new(Subscription {
            topic: "t".into(),
            expression: expression.into(),
            expression_type: "TAG".into(),
            version,
        })),
    }
}

fn tags(text: &str) -> TagFilter {
    TagFilter::parse(text).unwrap()
}

#[test]
fn the_filter_comes_from_where_the_rules_say() {
    let nobody = Registered::default();
    let no_topic = Registered {
        group: true,
        ..Registered::default()
    };
    let bit = PULL_SUBSCRIPTION;
    let a = || Ok(tags("A"));
    let b = || Ok(tags("B"));
    let all = || Ok(TagFilter::All);
    type Case<'a> = (&'a str, Pull<'a>, Registered, Result<TagFilter, i32>);
    let cases: Vec<Case<'_>> = vec![
        (
            "bit: own text",
            pull(bit, 0, Some("A")),
            nobody.clone(),
            a(),
        ),
        (
            "bit: own text before a known one",
            pull(bit, 0, Some("A")),
            known("B", 9),
            a(),
        ),
        (
            "bit: absent is all",
            pull(bit, 0, None),
            nobody.clone(),
            all(),
        ),
        (
            "bit: empty is the known one",
            pull(bit, 0, Some("")),
            known("B", 1),
            b(),
        ),
        (
            "bit: no tag",
            pull(bit, 0, Some("||")),
            nobody.clone(),
            Err(23),
        ),
        (
            "no bit: unknown group",
            pull(0, 0, None),
            nobody.clone(),
            Err(24),
        ),
        (
            "no bit: unknown group, with text",
            pull(0, 0, Some("A")),
            nobody,
            Err(24),
        ),
        ("no bit: unknown topic", pull(0, 0, None), no_topic, Err(24)),
        ("no bit: same version", pull(0, 5, None), known("B", 5), b()),
        (
            "no bit: newer here",
            pull(0, 4, Some("A")),
            known("B", 5),
            b(),
        ),
        (
            "no bit: newer there, no text",
            pull(0, 6, None),
            known("B", 5),
            Err(25),
        ),
        (
            "no bit: newer there, empty text",
            pull(0, 6, Some("")),
            known("B", 5),
            Err(25),
        ),
        (
            "no bit: newer there, with text",
            pull(0, 6, Some("A")),
            known("B", 5),
            a(),
        ),
        (
            "Go: empty text, version 0",
            pull(2, 0, Some("")),
            known("B", 5),
            b(),
        ),
        (
            "the known one says all",
            pull(2, 0, Some("")),
            known("*", 5),
            all(),
        ),
    ];
    for (what, pull, registered, wanted) in cases {
        let got = filter_of(&pull, &registered, true).map_err(|refusal| refusal.code);
        assert_eq!(got, wanted, "{what}");
    }
}

#[test]
fn expression_types_other_than_tag_are_named_in_the_refusal() {
    let mut sql = pull(PULL_SUBSCRIPTION, 0, Some("a > 1"));
    sql.expression_type = Some("SQL92");
    let refusal = filter_of(&sql, &Registered::default(), true).unwrap_err();
    assert_eq!(refusal.code, 1);
    assert_eq!(
        refusal.remark,
        "The broker does not support consumer to filter message by SQL92"
    );
    let mut registered = known("a > 1", 1);
    registered.subscription = registered.subscription.map(|known| {
        Arc::new(Subscription {
            expression_type: "XYZ".into(),
            ..(*known).clone()
        })
    });
    let refusal = filter_of(&pull(0, 0, None), &registered, true).unwrap_err();
    assert_eq!(
        refusal.remark,
        "The broker does not support consumer to filter message by XYZ"
    );
    sql.expression_type = Some("");
    sql.subscription = Some("A");
    assert!(filter_of(&sql, &Registered::default(), true).is_ok());
}

#[test]
fn a_group_that_must_not_broadcast_is_refused() {
    let mut registered = known("*", 1);
    registered.broadcasting = true;
    assert!(filter_of(&pull(0, 0, None), &registered, true).is_ok());
    let refusal = filter_of(&pull(0, 0, None), &registered, false).unwrap_err();
    assert_eq!(refusal.code, 16);
}
