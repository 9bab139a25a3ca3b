//! Tests: both header forms on good, odd and broken input.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;

fn read(text: &str) -> Result<Header, String> {
    read_json(Bytes::from(text.to_owned()))
}

fn read_bytes(bytes: &[u8]) -> Result<Header, String> {
    read_json(Bytes::copy_from_slice(bytes))
}

#[test]
fn languages_have_rocketmqs_numbers() {
    assert_eq!(language_number("CPP"), LANGUAGE_CPP);
    assert_eq!(language_number("GO"), 9);
    assert_eq!(language_number("COBOL"), LANGUAGE_OTHER);
    assert_eq!(language_name(9), "GO");
    assert_eq!(language_name(200), "OTHER");
}

#[test]
fn a_cpp_header_with_numbers_and_a_trailing_newline_is_read() {
    let header = read(
        "{\"code\":10,\"extFields\":{\"batch\":\"0\",\"bornTimestamp\":\"1795980212540\",\"queueId\":3,\"unitMode\":false},\"flag\":0,\"language\":\"CPP\",\"opaque\":4,\"remark\":\"\",\"version\":63}\n",
    )
    .unwrap();
    assert_eq!(header.language, LANGUAGE_CPP);
    assert_eq!(header.remark.as_ref().map(Text::as_str), Some(""));
    assert_eq!(header.ext.required_i32("queueId"), Ok(3));
    assert_eq!(header.ext.text("unitMode"), Some("false"));
    assert_eq!(header.ext.bool("batch"), Ok(Some(false)));
    assert_eq!(
        header.ext.required_i64("bornTimestamp"),
        Ok(1_795_980_212_540)
    );
    assert_eq!(
        header.ext.required("producerGroup"),
        Err(FieldError::Missing("producerGroup"))
    );
}

#[test]
fn missing_and_null_members_are_zero_or_absent() {
    for text in [
        "{}",
        r#" { "code" : null, "language":null, "remark":null, "extFields":null } "#,
        r#"{"code":7,"code":0,"extFields":{"a":"b"},"extFields":null,"remark":"x","remark":null}"#,
    ] {
        let header = read(text).unwrap();
        assert_eq!((header.code, header.opaque, header.flag), (0, 0, 0));
        assert_eq!((header.version, header.language), (0, 0));
        assert_eq!(header.remark, None);
        assert!(header.ext.is_empty(), "{text}");
    }
}

#[test]
fn numbers_may_be_texts_and_languages_numbers() {
    let header =
        read(r#"{"code":"310","opaque":"-7","flag":2,"version":"513","language":9}"#).unwrap();
    assert_eq!((header.code, header.opaque, header.flag), (310, -7, 2));
    assert_eq!((header.version, header.language), (513, 9));
    for (language, wanted) in [
        (r#""1""#, 1),
        ("300", LANGUAGE_OTHER),
        (r#""KLINGON""#, LANGUAGE_OTHER),
        (r#""""#, LANGUAGE_OTHER),
        ("-1", LANGUAGE_OTHER),
    ] {
        let header = read(&format!(r#"{{"language":{language}}}"#)).unwrap();
        assert_eq!(header.language, wanted, "{language}");
    }
}

#[test]
fn the_last_of_two_equal_names_wins() {
    let header = read(r#"{"code":1,"code":2,"extFields":{"a":"1","b":"x","a":"2"}}"#).unwrap();
    assert_eq!(header.code, 2);
    assert_eq!(header.ext.text("a"), Some("2"));
    let header = read(r#"{"extFields":{"a":"1"},"extFields":{"b":"2"}}"#).unwrap();
    assert_eq!(header.ext.text("a"), None);
    assert_eq!(header.ext.text("b"), Some("2"));
}

#[test]
fn unknown_members_are_skipped_with_all_that_is_in_them() {
    let header = read(
        r#"{"x":[1,{"y":[]},"]}\"",null,true,-1.5e+3,{}],"cod\u0065":5,"z":{"a":{"b":[[[]]]},"c":""}}"#,
    )
    .unwrap();
    assert_eq!(header.code, 5);
}

#[test]
fn values_that_are_no_scalars_are_kept_as_their_text() {
    let header = read(r#"{"extFields":{"a":{"b":[1, 2]},"c":[ ],"d":-1.50,"e":null}}"#).unwrap();
    let fields: Vec<_> = header.ext.iter().collect();
    assert_eq!(
        fields,
        [("a", r#"{"b":[1, 2]}"#), ("c", "[ ]"), ("d", "-1.50")]
    );
}

#[test]
fn escapes_stand_for_what_json_says() {
    let header = read(
        r#"{"remark":"\"\\\/\b\f\n\r\t\u0041\u00e9\ud83d\ude00","extFields":{"k\u0001":"TAGS\u0001A\u0002"}}"#,
    )
    .unwrap();
    let wanted = "\"\\/\u{8}\u{c}\n\r\tA\u{e9}\u{1f600}";
    assert_eq!(header.remark.unwrap().as_str(), wanted);
    assert_eq!(header.ext.text("k\u{1}"), Some("TAGS\u{1}A\u{2}"));
}

#[test]
fn a_surrogate_alone_is_replaced() {
    for (escaped, wanted) in [
        (r"\ud83d", "\u{fffd}"),
        (r"a\ude00b", "a\u{fffd}b"),
        (r"\ud83dx", "\u{fffd}x"),
        (r"\ud83d\u0041", "\u{fffd}A"),
        (r"\ud83d\ud83d\ude00", "\u{fffd}\u{1f600}"),
        (r"\ud83d\n", "\u{fffd}\n"),
    ] {
        let header = read(&format!(r#"{{"remark":"{escaped}"}}"#)).unwrap();
        assert_eq!(header.remark.unwrap().as_str(), wanted, "{escaped}");
    }
}

#[test]
fn what_is_not_utf8_is_replaced() {
    let header = read_bytes(b"{\"remark\":\"a\xffb\",\"extFields\":{\"k\":\"\xc3\"}}").unwrap();
    assert_eq!(header.remark.unwrap().as_str(), "a\u{fffd}b");
    assert_eq!(header.ext.text("k"), Some("\u{fffd}"));
}

#[test]
fn broken_json_is_an_error() {
    for text in [
        "",
        " ",
        "null",
        "[]",
        "5",
        "\"x\"",
        "{",
        "}",
        "{}}",
        "{} x",
        "{,}",
        "{\"code\"}",
        "{\"code\":}",
        "{\"code\":1,}",
        "{\"code\":1 \"flag\":2}",
        "{code:1}",
        "{'code':1}",
        "{\"code\":01}",
        "{\"code\":1.}",
        "{\"code\":.5}",
        "{\"code\":1.5}",
        "{\"code\":+1}",
        "{\"code\":-}",
        "{\"code\":2147483648}",
        "{\"code\":99999999999999999999}",
        "{\"code\":\"x\"}",
        "{\"code\":\"\"}",
        "{\"code\":true}",
        "{\"code\":{}}",
        "{\"x\":nul}",
        "{\"x\":truee}",
        "{\"x\":\"",
        "{\"x\":\"\\",
        "{\"x\":\"\\\"",
        "{\"remark\":\"\\x\"}",
        "{\"remark\":\"\\u12\"}",
        "{\"remark\":\"\\u12g4\"}",
        "{\"remark\":\"\\u+123\"}",
        "{\"remark\":\"\\",
        "{\"\\q\":1}",
        "{\"x\":[1,]}",
        "{\"x\":[1 2]}",
        "{\"x\":{\"y\"}}",
        "{\"x\":[}",
        "{\"x\":{]}",
        "{\"x\":[[]}",
        "{\"extFields\":[]}",
        "{\"extFields\":\"\"}",
        "{\"extFields\":{\"a\":\"b\"}",
        "{\"extFields\":{\"a\":\"\\q\"}}",
        "{\"extFields\":{\"a\":}}",
    ] {
        let error = read(text).expect_err(text);
        assert!(error.starts_with("at byte "), "{text}: {error}");
    }
}

#[test]
fn deep_nesting_and_many_fields_are_refused() {
    let nested = |depth: usize| format!("{{\"x\":{}{}}}", "[".repeat(depth), "]".repeat(depth));
    assert!(read(&nested(128)).is_ok());
    assert!(read(&nested(129)).is_err());
    assert!(read(&nested(1_000_000)).is_err());
    let fields = |count: usize| {
        let fields: Vec<_> = (0..count).map(|n| format!("\"{n}\":{n}")).collect();
        format!("{{\"extFields\":{{{}}}}}", fields.join(","))
    };
    assert_eq!(read(&fields(1024)).unwrap().ext.len(), 1024);
    assert!(read(&fields(1025)).is_err());
}

#[test]
fn pushed_fields_are_read_back() {
    let mut ext = Ext::new();
    ext.push("a", 5);
    ext.push_text("b", "x");
    ext.push_number("c", -7);
    ext.push("a", String::from("6"));
    let fields: Vec<_> = ext.iter().collect();
    assert_eq!(fields, [("a", "5"), ("b", "x"), ("c", "-7"), ("a", "6")]);
    assert_eq!(ext.i32("a"), Ok(Some(6)));
    assert_eq!(ext.i64("c"), Ok(Some(-7)));
    assert_eq!(ext.i32("d"), Ok(None));
}

#[test]
fn numbers_of_fields_are_read_up_to_their_bounds() {
    let mut ext = Ext::new();
    ext.push("max", i64::MAX);
    ext.push("min", i64::MIN);
    ext.push("above", "9223372036854775808");
    ext.push("i32 above", "2147483648");
    ext.push("i32 min", i32::MIN);
    ext.push("plus", "+5");
    ext.push("space", " 5");
    assert_eq!(ext.i64("max"), Ok(Some(i64::MAX)));
    assert_eq!(ext.i64("min"), Ok(Some(i64::MIN)));
    assert!(ext.i64("above").is_err());
    assert!(ext.i32("i32 above").is_err());
    assert_eq!(ext.i32("i32 min"), Ok(Some(i32::MIN)));
    assert_eq!(ext.i32("plus"), Ok(Some(5)));
    assert!(ext.i32("space").is_err());
}

fn binary(remark: &[u8], fields: &[(&[u8], &[u8])]) -> Vec<u8> {
    let mut map = Vec::new();
    for (name, value) in fields {
        map.extend((name.len() as i16).to_be_bytes());
        map.extend(*name);
        map.extend((value.len() as i32).to_be_bytes());
        map.extend(*value);
    }
    let mut out = Vec::new();
    out.extend(310i16.to_be_bytes());
    out.push(9);
    out.extend(317i16.to_be_bytes());
    out.extend(7i32.to_be_bytes());
    out.extend(2i32.to_be_bytes());
    out.extend((remark.len() as i32).to_be_bytes());
    out.extend(remark);
    out.extend((map.len() as i32).to_be_bytes());
    out.extend(map);
    out
}

#[test]
fn a_binary_header_is_read() {
    let bytes = binary(b"r", &[(b"a", b"x"), (b"empty", b""), (b"b", b"\xff")]);
    let header = read_binary(bytes.clone().into()).unwrap();
    assert_eq!((header.code, header.language), (310, 9));
    assert_eq!((header.version, header.opaque, header.flag), (317, 7, 2));
    assert_eq!(header.remark.unwrap().as_str(), "r");
    let fields: Vec<_> = header.ext.iter().collect();
    assert_eq!(fields, [("a", "x"), ("b", "\u{fffd}")]);
    // A remark of no length is none.
    let header = read_binary(binary(b"", &[]).into()).unwrap();
    assert!(header.remark.is_none() && header.ext.is_empty());
}

#[test]
fn a_binary_header_cut_anywhere_is_an_error() {
    let bytes = binary(b"remark", &[(b"name", b"value")]);
    for end in 0..bytes.len() {
        assert!(read_binary(bytes[..end].to_vec().into()).is_err(), "{end}");
    }
}

#[test]
fn lengths_of_a_binary_header_beyond_its_end_are_errors() {
    let bytes = binary(b"", &[(b"name", b"value")]);
    // The remark's length, the map's, the name's, the value's.
    for at in [13, 17] {
        for length in [-1, i32::MIN, i32::MAX, 1000] {
            let mut bytes = bytes.clone();
            bytes[at..at + 4].copy_from_slice(&length.to_be_bytes());
            assert!(read_binary(bytes.into()).is_err(), "{at} {length}");
        }
    }
    for (at, field) in [(21, vec![0xff, 0xff]), (27, vec![0x7f, 0xff, 0xff, 0xff])] {
        let mut bytes = bytes.clone();
        bytes[at..at + field.len()].copy_from_slice(&field);
        assert!(read_binary(bytes.into()).is_err(), "{at}");
    }
}

/// Any JSON value, a few levels deep.
fn any_json() -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-1.0e9..1.0e9f64).prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    scalar.prop_recursive(4, 24, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((any::<String>(), inner), 0..6)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// A header as a client may send it: known members of fitting types, and unknown ones of any.
fn any_header() -> impl Strategy<Value = Map<String, Value>> {
    let field = prop_oneof![
        Just(Value::Null),
        any::<String>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
    ];
    (
        any::<[i32; 4]>(),
        prop::option::of(any::<String>()),
        prop::collection::vec((any::<String>(), field), 0..20),
        prop::collection::vec(("[A-Z]{1,8}", any_json()), 0..4),
    )
        .prop_map(|(numbers, remark, fields, unknown)| {
            let mut header: Map<String, Value> = unknown.into_iter().collect();
            for (name, number) in ["code", "opaque", "flag", "version"].iter().zip(numbers) {
                header.insert(name.to_string(), json!(number));
            }
            header.insert("remark".into(), json!(remark));
            let fields: Map<String, Value> = fields.into_iter().collect();
            header.insert("extFields".into(), Value::Object(fields));
            header
        })
}

/// What serde_json accepts of a header, we accept; this says whether it does.
fn serde_accepts(bytes: &[u8]) -> bool {
    let Ok(Value::Object(header)) = serde_json::from_slice(bytes) else {
        return false;
    };
    let numbers = ["code", "opaque", "flag", "version"].iter().all(|name| {
        let number = header.get(*name).map(Value::as_i64);
        number.is_none_or(|number| number.is_some_and(|number| i32::try_from(number).is_ok()))
    });
    let ext = header.get("extFields");
    numbers && ext.is_none_or(|ext| ext.is_null() || ext.is_object())
}

proptest! {
    #[test]
    fn the_scanner_reads_what_serde_json_reads(header in any_header(), pretty: bool) {
        let text = if pretty {
            serde_json::to_string_pretty(&header)
        } else {
            serde_json::to_string(&header)
        };
        let read = read(&text.unwrap()).unwrap();
        prop_assert_eq!(json!(read.code), header["code"].clone());
        prop_assert_eq!(json!(read.opaque), header["opaque"].clone());
        prop_assert_eq!(json!(read.flag), header["flag"].clone());
        prop_assert_eq!(json!(read.version), header["version"].clone());
        let remark = read.remark.as_ref().map(Text::as_str);
        prop_assert_eq!(remark, header["remark"].as_str());
        let fields = header["extFields"].as_object().unwrap();
        let present = fields.iter().filter(|(_, value)| !value.is_null());
        prop_assert_eq!(read.ext.len(), present.clone().count());
        for (name, value) in present {
            let wanted = match value {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            prop_assert_eq!(read.ext.text(name), Some(wanted.as_str()));
        }
    }

    #[test]
    fn a_changed_header_is_read_where_serde_json_reads_it(
        header in any_header(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        end in any::<prop::sample::Index>(),
    ) {
        let mut bytes = serde_json::to_vec(&header).unwrap();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        for bytes in [&bytes[..], &bytes[..end.index(bytes.len())]] {
            let read = read_bytes(bytes);
            prop_assert!(read.is_ok() || !serde_accepts(bytes), "{:?}", read);
            if let Ok(header) = read {
                // Every span leads to a text.
                prop_assert_eq!(header.ext.iter().count(), header.ext.len());
            }
        }
    }

    #[test]
    fn written_strings_are_what_serde_json_reads(text: String) {
        let mut out = bytes::BytesMut::new();
        write_string(&mut out, &text);
        let read: String = serde_json::from_slice(&out).unwrap();
        prop_assert_eq!(read, text);
    }

    #[test]
    fn noise_is_no_header_and_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = read_json(Bytes::from(bytes.clone()));
        if let Ok(header) = read_binary(Bytes::from(bytes)) {
            prop_assert_eq!(header.ext.iter().count(), header.ext.len());
        }
    }
}
