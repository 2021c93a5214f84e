//! Flattening of layers, and archives made to escape.

use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::stage::{Stage, check, check_refused, is_root};
use crate::tar_writer::{file, folder, hard_link, other, symlink, tar};

// Names that try to leave.

#[test]
fn absolute_and_parent_names_stay_inside_the_root() {
    check(
        &[tar([
            file("/etc/passwd", "1"),
            file("../../../../up", "2"),
            file("a/../../b", "3"),
            file("./././c//d", "4"),
            folder(".."),
            folder("/"),
        ])],
        r#"
        b 644 "3"
        c/ 755
        c/d 644 "4"
        etc/ 755
        etc/passwd 644 "1"
        up 644 "2"
        "#,
    );
}

#[test]
fn a_file_through_an_absolute_symlink_lands_inside_the_root() {
    let stage = Stage::new();
    let outside = stage.canary("");
    stage
        .unpack(&[tar([
            symlink("door", &outside),
            file("door/file", "evil"),
            file("door/new", "evil"),
        ])])
        .expect("the link is taken inside the image");
    let inside = format!("{}{outside}/new", stage.root().display());
    assert_eq!(fs::read(inside).expect("it landed there"), b"evil");
}

#[test]
fn a_file_through_parent_symlinks_lands_inside_the_root() {
    check(
        &[tar([
            symlink("door", "../../../../../../../../.."),
            file("door/etc/x", "evil"),
            folder("d"),
            symlink("d/up", "../../canary"),
            file("d/up/file", "evil"),
        ])],
        r#"
        canary/ 755
        canary/file 644 "evil"
        d/ 755
        d/up -> ../../canary
        door -> ../../../../../../../../..
        etc/ 755
        etc/x 644 "evil"
        "#,
    );
}

#[test]
fn a_file_replaces_a_symlink_instead_of_writing_through_it() {
    let stage = Stage::new();
    let target = stage.canary("file");
    stage
        .unpack(&[
            tar([symlink("x", &target), file("x", "mine")]),
            tar([symlink("y", &target)]),
            tar([file("y", "mine")]),
        ])
        .expect("nothing is wrong with it");
    assert_eq!(stage.listing(), "x 644 \"mine\"\ny 644 \"mine\"\n");
}

#[test]
fn a_folder_entry_replaces_a_symlink_to_a_folder() {
    check(
        &[
            tar([
                folder("usr/lib"),
                file("usr/lib/a", ""),
                symlink("lib", "usr/lib"),
            ]),
            tar([folder("lib"), file("lib/b", "")]),
        ],
        r#"
        lib/ 755
        lib/b 644 ""
        usr/ 755
        usr/lib/ 755
        usr/lib/a 644 ""
        "#,
    );
}

#[test]
fn mode_and_time_of_a_symlink_do_not_reach_its_target() {
    let stage = Stage::new();
    let outside = stage.canary("sub");
    let link = symlink("x", outside).mode(0o000).owner(12, 34);
    let again = folder("x/").mode(0o700);
    stage
        .unpack(&[tar([link.clone()])])
        .expect("a link may lead anywhere");
    let stage = Stage::new();
    stage.unpack(&[tar([link, again])]).expect("it is replaced");
    assert_eq!(stage.listing(), "x/ 700\n");
}

#[test]
fn links_in_a_circle_are_refused() {
    check_refused(
        &[tar([symlink("a", "b"), symlink("b", "a"), file("a/x", "")])],
        "circle",
    );
    check_refused(&[tar([symlink("a", "a"), file("a/x", "")])], "entry `a/x`");
    let mut long: Vec<_> = (0..60)
        .map(|index| symlink(format!("l{index}"), format!("l{}", index + 1)))
        .collect();
    long.push(file("l0/x", ""));
    check_refused(&[tar(long)], "more than 40");
}

#[test]
fn links_that_multiply_each_other_are_refused_soon() {
    // Each of these doubles the way that the one before stands for.
    let mut bomb = vec![symlink("l0", "l0-end/../l0-end")];
    for index in 1..40 {
        let before = index - 1;
        bomb.push(symlink(
            format!("l{index}"),
            format!("l{before}/../l{before}"),
        ));
    }
    bomb.push(file("l39/x", ""));
    check_refused(&[tar(bomb)], "more than 40");
}

#[test]
fn the_way_through_usr_merge_links_works() {
    check(
        &[
            tar([
                folder("usr/lib"),
                symlink("lib", "usr/lib"),
                symlink("lib64", "/lib"),
            ]),
            tar([
                file("lib/a", "1"),
                file("lib64/b", "2"),
                folder("lib/sub"),
                file("lib/sub/c", "3"),
            ]),
            tar([file("lib/.wh.a", ""), hard_link("lib/d", "lib64/b")]),
        ],
        r#"
        lib -> usr/lib
        lib64 -> /lib
        usr/ 755
        usr/lib/ 755
        usr/lib/b 644 "2"
        usr/lib/d 644 "2"
        usr/lib/sub/ 755
        usr/lib/sub/c 644 "3"
        "#,
    );
}

#[test]
fn a_dangling_link_in_the_way_gets_its_folders() {
    check(
        &[tar([symlink("run", "var/run"), file("run/pid", "1")])],
        r#"
        run -> var/run
        var/ 755
        var/run/ 755
        var/run/pid 644 "1"
        "#,
    );
}

// Hard links.

#[test]
fn hard_links_out_of_the_tree_are_refused() {
    let stage = Stage::new();
    for target in [
        stage.canary("file"),
        "../canary/file".to_owned(),
        "d/../../canary/file".to_owned(),
    ] {
        let error = Stage::new()
            .unpack(&[tar([folder("d"), hard_link("x", &target)])])
            .expect_err("there is no such file in the image");
        assert!(error.to_string().contains("hard link to `"), "{error}");
    }
    let way = stage.canary("");
    let error = stage
        .unpack(&[tar([symlink("door", &way), hard_link("x", "door/file")])])
        .expect_err("the link is taken inside the image");
    assert!(
        error.to_string().contains("hard link to `door/file`"),
        "{error}"
    );
}

#[test]
fn a_hard_link_to_a_symlink_is_one_to_the_link_itself() {
    let stage = Stage::new();
    let target = stage.canary("file");
    stage
        .unpack(&[
            tar([symlink("s", &target), hard_link("x", "s")]),
            tar([file("x", "mine")]),
        ])
        .expect("nothing is wrong with it");
    assert_eq!(stage.listing(), format!("s -> {target}\nx 644 \"mine\"\n"));
}

#[test]
fn hard_links_chain_and_cross_layers() {
    let stage = Stage::new();
    stage
        .unpack(&[
            tar([file("a", "1"), hard_link("b", "a"), hard_link("d/c", "/b")]),
            tar([hard_link("e", "./d/c"), hard_link("a", "a")]),
        ])
        .expect("sound");
    assert_eq!(
        stage.listing(),
        "a 644 \"1\"\nb 644 \"1\"\nd/ 755\nd/c 644 \"1\"\ne 644 \"1\"\n"
    );
    let meta = fs::metadata(stage.root().join("a")).expect("made above");
    assert_eq!(meta.nlink(), 4);
}

#[test]
fn replacing_one_name_leaves_the_other_links_alone() {
    check(
        &[
            tar([file("a", "1"), hard_link("b", "a")]),
            tar([file("a", "2"), hard_link("c", "a")]),
            tar([file("c", "3"), hard_link("c", "b")]),
        ],
        r#"
        a 644 "2"
        b 644 "1"
        c 644 "1"
        "#,
    );
}

#[test]
fn hard_links_that_cannot_be_are_refused() {
    check_refused(
        &[tar([hard_link("x", "later"), file("later", "")])],
        "`later`",
    );
    check_refused(&[tar([folder("d"), hard_link("x", "d")])], "the folder `d`");
    check_refused(&[tar([hard_link("x", ".")])], "root of the image");
    check_refused(&[tar([hard_link("x", "")])], "root of the image");
    check_refused(&[tar([hard_link("x", "x")])], "`x`");
    check_refused(
        &[tar([file("a/b", "1"), hard_link("a", "a/b")])],
        "its own target",
    );
    check_refused(
        &[tar([file("a", "1")]), tar([hard_link("a/b", "a")])],
        "its own target",
    );
    check_refused(
        &[
            tar([file("a", "1")]),
            tar([file(".wh.a", ""), hard_link("b", "a")]),
        ],
        "`a`",
    );
}

// Whiteouts.

#[test]
fn a_whiteout_removes_from_lower_layers_only_in_either_order() {
    let lower = tar([
        file("a", "1"),
        file("d/x", "1"),
        file("d/y", "1"),
        file("keep", "1"),
    ]);
    let expected = r#"
        a 644 "2"
        d/ 755
        d/x 644 "2"
        keep 644 "1"
        "#;
    check(
        &[
            lower.clone(),
            tar([
                file(".wh.a", ""),
                file("a", "2"),
                file(".wh.d", ""),
                file("d/x", "2"),
            ]),
        ],
        expected,
    );
    check(
        &[
            lower,
            tar([
                file("a", "2"),
                file(".wh.a", ""),
                file("d/x", "2"),
                file(".wh.d", ""),
            ]),
        ],
        expected,
    );
}

#[test]
fn a_hidden_folder_that_comes_again_has_nothing_of_its_old_self() {
    for later in [
        [folder("d/").mode(0o750), file(".wh.d", "")],
        [file(".wh.d", ""), folder("d/").mode(0o750)],
    ] {
        check(
            &[
                tar([folder("d/").mode(0o711), file("d/old/x", "1")]),
                tar(later),
            ],
            "d/ 750",
        );
    }
    // Only what is in it comes again: then no layer describes it.
    for later in [
        [file("d/new", "2"), file(".wh.d", "")],
        [file(".wh.d", ""), file("d/new", "2")],
    ] {
        check(
            &[
                tar([folder("d/").mode(0o711), file("d/old", "1")]),
                tar(later),
            ],
            "d/ 755\nd/new 644 \"2\"",
        );
    }
}

#[test]
fn an_opaque_folder_hides_all_that_is_lower_wherever_the_mark_stands() {
    let lower = tar([
        folder("d/").mode(0o711),
        file("d/a", "1"),
        file("d/sub/b", "1"),
        file("e", "1"),
    ]);
    let new = [file("d/c", "2"), file("d/sub/f", "2")];
    let mark = file("d/.wh..wh..opq", "");
    let expected = r#"
        d/ 711
        d/c 644 "2"
        d/sub/ 755
        d/sub/f 644 "2"
        e 644 "1"
        "#;
    for at in 0..=2 {
        let mut upper = new.to_vec();
        upper.insert(at, mark.clone());
        check(&[lower.clone(), tar(upper)], expected);
    }
}

#[test]
fn an_opaque_root_hides_the_whole_image_below() {
    check(
        &[
            tar([file("a", "1"), file("d/x", "1")]),
            tar([file("d/y", "2"), file(".wh..wh..opq", "")]),
        ],
        "d/ 755\nd/y 644 \"2\"",
    );
}

#[test]
fn whiteouts_of_nothing_are_harmless() {
    let summary = check(
        &[tar([
            file(".wh.missing", ""),
            file("no/such/.wh.x", ""),
            file("no/.wh..wh..opq", ""),
            file("a", "1"),
            file("a/.wh.x", ""),
        ])],
        "a 644 \"1\"",
    );
    assert_eq!(summary.total.whiteouts, 4);
}

#[test]
fn whiteout_tricks_hide_nothing_outside() {
    for trick in [
        ".wh.", ".wh..", ".wh...", "d/.wh.", "d/.wh..", "d/.wh...", "/.wh...",
    ] {
        check_refused(
            &[tar([folder("d"), file("a", "1")]), tar([file(trick, "")])],
            "whiteout that names no file",
        );
    }
    // As folders on the way they name nothing that an image can have.
    check(
        &[
            tar([file("a", "1")]),
            tar([
                file(".wh.a/x", ""),
                file(".wh.../x", ""),
                file(".wh.../.wh..wh..opq", ""),
                hard_link(".wh..wh.plnk/1.2", "a"),
                file(".wh..wh.aufs", ""),
                folder(".wh..wh.orph/"),
            ]),
        ],
        "a 644 \"1\"",
    );
}

#[test]
fn a_whiteout_through_a_link_removes_inside_the_root_only() {
    let stage = Stage::new();
    let way = stage.canary("");
    stage
        .unpack(&[
            tar([symlink("door", &way), symlink("up", "../..")]),
            tar([
                file("door/.wh.file", ""),
                file("door/.wh..wh..opq", ""),
                file("up/canary/.wh.file", ""),
                file("../canary/.wh.file", ""),
            ]),
        ])
        .expect("there is nothing there");
    assert_eq!(stage.listing(), format!("door -> {way}\nup -> ../..\n"));
}

#[test]
fn a_whiteout_of_a_link_leaves_its_target() {
    check(
        &[
            tar([
                folder("usr/lib"),
                file("usr/lib/a", ""),
                symlink("lib", "usr/lib"),
            ]),
            tar([file(".wh.lib", "")]),
        ],
        "usr/ 755\nusr/lib/ 755\nusr/lib/a 644 \"\"",
    );
}

// One thing over another.

#[test]
fn any_kind_replaces_any_other() {
    check(
        &[
            tar([
                file("file-over-folder/x/y", "1"),
                file("folder-over-file", "1"),
                symlink("file-over-link", "nowhere"),
                file("link-over-file", "1"),
                file("link-over-folder/x", "1"),
                file("fifo-over-file", "1"),
                file("in-the-way", "1"),
            ]),
            tar([
                file("file-over-folder", "2"),
                folder("folder-over-file"),
                file("file-over-link", "2"),
                symlink("link-over-file", "t"),
                symlink("link-over-folder", "t"),
                other(b'6', "fifo-over-file"),
                file("in-the-way/below", "2"),
            ]),
        ],
        r#"
        fifo-over-file fifo 644
        file-over-folder 644 "2"
        file-over-link 644 "2"
        folder-over-file/ 755
        in-the-way/ 755
        in-the-way/below 644 "2"
        link-over-file -> t
        link-over-folder -> t
        "#,
    );
}

#[test]
fn a_name_below_a_file_of_the_same_layer_is_refused() {
    check_refused(
        &[tar([file("a", "1"), file("a/b", "2")])],
        "`a` is not a folder",
    );
}

#[test]
fn of_several_entries_with_one_name_the_last_one_counts() {
    check(
        &[tar([
            file("a", "1"),
            file("a", "2"),
            file("./a", "3").mode(0o600),
            folder("d").mode(0o700),
            file("d/x", "1"),
            folder("d").mode(0o755),
        ])],
        "a 600 \"3\"\nd/ 755\nd/x 644 \"1\"",
    );
}

#[test]
fn devices_become_empty_files_and_unknown_types_are_passed_over() {
    let summary = check(
        &[tar([
            other(b'3', "null")
                .mode(0o666)
                .patch(329, "0000001\0")
                .patch(337, "0000003\0"),
            other(b'4', "sda")
                .mode(0o660)
                .patch(329, "junk, never read"),
            other(b'6', "pipe").mode(0o622),
            other(b'V', "label"),
            other(b'Z', "unknown"),
            file("a", "1"),
        ])],
        if is_root() {
            "a 644 \"1\"\nnull 666 \"\"\npipe fifo 622\nsda 660 \"\""
        } else {
            // A FIFO that its owner cannot read cannot be opened up by the owner either.
            "a 644 \"1\"\nnull 666 \"\"\npipe fifo 622\nsda 660 \"\""
        },
    );
    assert_eq!(summary.total.devices_emptied, 2);
    assert_eq!(summary.total.fifos, 1);
    assert_eq!(summary.total.skipped, 2);
}

#[test]
fn an_entry_for_the_root_is_a_folder_or_refused() {
    let stage = Stage::new();
    stage
        .unpack(&[tar([folder("./").mode(0o751)])])
        .expect("sound");
    let mode = fs::metadata(stage.root()).expect("own folder").mode();
    assert_eq!(mode & 0o7777, 0o751);
    check_refused(&[tar([file("", "x")])], "without a name");
    check_refused(&[tar([file(".", "x")])], "only be a folder");
    check_refused(&[tar([symlink("/", "/etc")])], "only be a folder");
    check_refused(&[tar([hard_link("..", "x")])], "only be a folder");
}

#[test]
fn a_folder_that_is_not_empty_is_refused() {
    let stage = Stage::new();
    fs::write(stage.root().join("x"), "").expect("own folder");
    let error = stage
        .unpack(&[tar([])])
        .expect_err("it has something in it");
    assert!(error.to_string().contains("root"), "{error}");
}

// Modes.

#[test]
fn modes_are_kept_unless_they_lock_the_user_out() {
    let summary = check(
        &[tar([
            file("setuid", "").mode(0o4755),
            file("setgid", "").mode(0o2711),
            folder("sticky").mode(0o1777),
            folder("shared").mode(0o2775),
            file("read-only", "").mode(0o444),
            file("open", "").mode(0o666),
            file("none", "").mode(0o000),
            file("run-only", "").mode(0o111),
            folder("closed").mode(0o000),
            file("closed/x", "1"),
        ])],
        if is_root() {
            r#"
            closed/ 0
            closed/x 644 "1"
            none 0 ""
            open 666 ""
            read-only 444 ""
            run-only 111 ""
            setgid 2711 ""
            setuid 4755 ""
            shared/ 2775
            sticky/ 1777
            "#
        } else {
            r#"
            closed/ 700
            closed/x 644 "1"
            none 600 ""
            open 666 ""
            read-only 444 ""
            run-only 711 ""
            setgid 2711 ""
            setuid 4755 ""
            shared/ 2775
            sticky/ 1777
            "#
        },
    );
    assert_eq!(summary.total.setid_files, 2);
    assert_eq!(summary.total.modes_opened, if is_root() { 0 } else { 3 });
}

#[test]
fn read_only_folders_take_later_entries_and_later_layers() {
    let mode = if is_root() { "555" } else { "755" };
    check(
        &[
            tar([
                folder("d").mode(0o555),
                folder("d/e").mode(0o500),
                file("d/e/x", "1"),
            ]),
            tar([file("d/y", "2"), file("d/e/.wh.x", "")]),
        ],
        &format!(
            "d/ {mode}\nd/e/ {}\nd/y 644 \"2\"",
            if is_root() { "500" } else { "700" }
        ),
    );
}

#[test]
fn owners_are_kept_by_root_and_counted_for_others() {
    let stage = Stage::new();
    let summary = stage
        .unpack(&[tar([
            file("a", "").owner(12, 34).mode(0o4755),
            folder("d").owner(56, 78),
            symlink("l", "a").owner(90, 12),
            file("big", "").owner(3_000_000, 3_000_001),
            file("pax", "").pax("uid", "4000000").pax("gid", "5000000"),
        ])])
        .expect("sound");
    if !is_root() {
        assert_eq!(summary.total.owners_dropped, 5);
        return;
    }
    let of = |name: &str| {
        let meta = fs::symlink_metadata(stage.root().join(name)).expect("made");
        (meta.uid(), meta.gid(), meta.mode() & 0o7777)
    };
    assert_eq!(of("a"), (12, 34, 0o4755));
    assert_eq!(of("d"), (56, 78, 0o755));
    assert_eq!(of("l"), (90, 12, 0o777));
    assert_eq!(of("big"), (3_000_000, 3_000_001, 0o644));
    assert_eq!(of("pax"), (4_000_000, 5_000_000, 0o644));
    check_refused(&[tar([file("a", "").pax("uid", "4294967295")])], "owner");
    check_refused(&[tar([file("a", "").pax("uid", "-1")])], "owner");
}
