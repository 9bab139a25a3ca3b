use super::*;

#[test]
fn only_what_was_never_durable_is_cut() {
    use Decision::*;
    // end of the valid entries, why the scan stopped, durable mark
    let table = [
        (100, Stop::Empty, 100, Keep),
        (100, Stop::Empty, 60, Keep),
        (100, Stop::Empty, 0, Keep),
        (0, Stop::Empty, 0, Keep),
        (100, Stop::Bad, 100, Cut),
        (100, Stop::Bad, 60, Cut),
        (0, Stop::Bad, 0, Cut),
        (99, Stop::Bad, 100, Refuse),
        (99, Stop::Empty, 100, Refuse),
        (0, Stop::Empty, 1, Refuse),
        (0, Stop::Bad, 1, Refuse),
    ];
    for (end, stop, mark, expected) in table {
        let decision = decide(end, &stop, mark);
        assert_eq!(decision, expected, "end {end}, {stop:?}, mark {mark}");
    }
}
