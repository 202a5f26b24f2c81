//! `gatewright store`: care of a database, as an operator does it.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

mod common;

use common::{Daemon, folder, gatewright};
use gatewright_store::{Database, DatabaseOptions};
use std::fs;

/// The answers and exit codes of each verb, with a sound database, a running one and a foreign file.
#[test]
fn a_database_is_verified_backed_up_restored_and_salvaged() {
    let folder = folder("store-verbs");
    let at = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let (store, copy, saved) = (at("cse.db"), at("copy.db"), at("saved.db"));
    let (database, _) = Database::open(store.as_ref(), &DatabaseOptions::default()).unwrap();
    // It is in use: that keeps nobody from looking at it or from copying it.
    let sound = gatewright(&["store", "verify", &store]);
    assert_eq!((sound.code, &*sound.out), (0, "sound: 0 rows, 0 resources\n"), "{}", sound.err);
    assert_eq!(gatewright(&["store", "backup", &store, &copy]).code, 0);
    let twice = gatewright(&["store", "backup", &store, &copy]);
    assert_eq!(twice.code, 78);
    assert!(twice.err.contains(&format!("{copy} exists already")), "{}", twice.err);
    let busy = gatewright(&["store", "restore", &copy, &store]);
    assert_eq!(busy.code, 75);
    assert!(busy.err.contains("in use by another process"), "{}", busy.err);
    drop(database);
    let restored = gatewright(&["store", "restore", &copy, &store, "--json"]).json();
    assert_eq!(restored["kept"], format!("{store}.before-restore"));
    let again = gatewright(&["store", "restore", &copy, &store]);
    let how =
        format!("{store}.before-restore exists already, and is not overwritten: move it away");
    assert!(again.code == 78 && again.err.contains(&how), "{} {}", again.code, again.err);
    let salvaged = gatewright(&["store", "salvage", &store, &saved, "--json"]).json();
    assert_eq!((&salvaged["rows"], &salvaged["gaps"]), (&0.into(), &serde_json::json!([])));
    assert_eq!(gatewright(&["store", "quarantine", &store]).out, "every row can be read\n");
    let foreign = at("foreign");
    fs::write(&foreign, "no database").unwrap();
    let blamed = gatewright(&["store", "restore", &foreign, &store]);
    assert!(blamed.err.contains(&foreign) && !blamed.err.contains(&store), "{}", blamed.err);
    for verb in ["verify", "quarantine"] {
        let refused = gatewright(&["store", verb, &foreign]);
        assert_eq!(refused.code, 78, "{}", refused.out);
        assert!(refused.err.contains(&foreign), "{}", refused.err);
    }
    assert_eq!(gatewright(&["store", "verify", &at("missing.db")]).code, 78);
}

/// A folder has as many names as it has folders, which is no fault of a database.
#[test]
fn a_folder_is_called_one_and_its_databases_are_named() {
    let folder = folder("store-folder");
    let at = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let (folder_itself, new) = (folder.to_str().unwrap(), at("new.db"));
    let verbs: [&[&str]; 5] = [
        &["verify", folder_itself],
        &["quarantine", folder_itself],
        &["backup", folder_itself, &new],
        &["salvage", folder_itself, &new],
        &["restore", folder_itself, &new],
    ];
    for has_one in [false, true] {
        if has_one {
            drop(Database::open(at("cse.db").as_ref(), &DatabaseOptions::default()).unwrap());
        }
        for verb in verbs {
            let said = gatewright(&[&["store"], verb].concat());
            let wanted = if has_one { at("cse.db") } else { "there is no database in it".into() };
            assert_eq!(said.code, 78, "{verb:?}");
            let text = said.err;
            assert!(text.contains("is a folder") && text.contains(&wanted), "{verb:?}: {text}");
            assert!(!fs::exists(&new).unwrap(), "{verb:?}");
        }
    }
}

/// The error names the folder, and not the lock that could not be created there.
#[test]
fn a_missing_folder_of_the_store_is_named() {
    let folder = folder("store-nowhere");
    let file = folder.join("gateway.toml");
    fs::write(&file, "[cse]\nid = \"/gw\"\nbase = \"gw\"\nstore = \"none/cse.db\"\n").unwrap();
    let refused = gatewright(&["run", file.to_str().unwrap(), "--stop-after", "1"]);
    // A service manager tries again: the folder may be on a disk that is mounted later.
    assert_eq!(refused.code, 69, "{}", refused.err);
    let none = folder.join("none");
    let wanted =
        format!("there is no folder {} for {}", none.display(), none.join("cse.db").display());
    assert!(refused.err.contains(&wanted) && refused.err.contains("mkdir -p"), "{}", refused.err);
    assert!(refused.err.contains("gateway.toml:4:"), "{}", refused.err);
}

/// A database belongs to one CSE: under another identifier or base, what it holds would answer by
/// names that nobody knows, and what others know would be gone.
#[test]
fn another_id_or_base_over_a_database_is_refused_and_changes_nothing() {
    let folder = folder("store-identity");
    let text = |id: &str, base: &str| {
        format!("[cse]\nid = \"{id}\"\nbase = \"{base}\"\nstore = \"cse.db\"\n")
    };
    let ours = text("/ward-gw", "ward");
    drop(Daemon::start(folder.clone(), &ours));
    let (file, store) = (folder.join("gateway.toml"), folder.join("cse.db"));
    let (file, store) = (file.to_str().unwrap(), store.to_str().unwrap());
    for (id, base, place) in
        [("/other-gw", "ward", ":2:"), ("/ward-gw", "other", ":3:"), ("/other-gw", "other", ":2:")]
    {
        fs::write(file, text(id, base)).unwrap();
        let refused = gatewright(&["run", file, "--stop-after", "1"]);
        assert_eq!(refused.code, 78, "{}", refused.err);
        for part in [
            store,
            "the CSE /ward-gw with the base ward, and the description says",
            &format!("{id} with the base {base}"),
            "write them in the description to go on with it, or give another path as `store`",
            &format!("gateway.toml{place}"),
        ] {
            assert!(refused.err.contains(part), "{part}: {}", refused.err);
        }
    }
    let sound = gatewright(&["store", "verify", store]);
    assert_eq!(sound.code, 0, "{}", sound.err);
    // Its own description starts as before, and a reload of another one says what a restart needs.
    let gateway = Daemon::start(folder.clone(), &ours);
    fs::write(file, text("/ward-gw", "other")).unwrap();
    let reload = gateway.ask(&["reload"]);
    assert_ne!(reload.code, 0, "{}", reload.out);
    let help = "a restart takes another one only with another `store`";
    assert!(reload.err.contains("GW0170") && reload.err.contains(help), "{}", reload.err);
}
