//! The file of a policy: who may write it, and its keys.

use crate::identity::{Directory, give_away};
use crate::supervised::Result;
use broker::policy::{Checked, Diagnostic, LoadError, Names, Policy};
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;
use testkit::{Test, tests};

pub fn tests() -> Vec<Test> {
    tests![
        a_policy_of_ones_own_is_loaded,
        a_policy_that_others_can_write_is_refused,
        a_policy_in_a_directory_that_others_can_write_is_refused,
        a_policy_of_another_user_is_refused,
        what_is_no_file_is_refused,
        all_faults_are_told,
        the_packaged_policy_admits_nobody,
        the_guide_has_every_key,
        the_policies_of_the_documentation_are_valid,
    ]
}

const TEXT: &str = "[[tenant]]\nname = 'a'\nuid = 1\n";

fn written(directory: &Directory, text: &[u8], mode: u32) -> Result<PathBuf> {
    let path = directory.path("broker.toml");
    fs::write(&path, text)?;
    fs::set_permissions(&path, Permissions::from_mode(mode))?;
    Ok(path)
}

fn refused(path: &Path) -> Result<LoadError> {
    let error = Policy::load(path).err();
    error.ok_or_else(|| format!("{} is loaded", path.display()).into())
}

fn refused_because(path: &Path, words: &str) -> Result<()> {
    let error = refused(path)?.to_string();
    assert!(error.contains(words), "{error}, not: {words}");
    assert!(error.contains(&path.display().to_string()), "{error}");
    Ok(())
}

fn a_policy_of_ones_own_is_loaded() -> Result<()> {
    let directory = Directory::new()?;
    let path = written(&directory, TEXT.as_bytes(), 0o644)?;
    let policy = Policy::load(&path)?;
    assert_eq!(policy.tenants.len(), 1);
    let link = directory.path("link");
    symlink(&path, &link)?;
    assert_eq!(Policy::load(&link)?, policy);
    Ok(())
}

fn a_policy_that_others_can_write_is_refused() -> Result<()> {
    let directory = Directory::new()?;
    for (mode, who) in [
        (0o664, "group "),
        (0o646, "everyone may write it"),
        (0o666, "everyone may write it"),
    ] {
        let path = written(&directory, TEXT.as_bytes(), mode)?;
        refused_because(&path, who)?;
        refused_because(&path, "chmod go-w")?;
    }
    Ok(())
}

fn a_policy_in_a_directory_that_others_can_write_is_refused() -> Result<()> {
    let directory = Directory::new()?;
    let path = written(&directory, TEXT.as_bytes(), 0o600)?;
    fs::set_permissions(&directory.0, Permissions::from_mode(0o777))?;
    refused_because(&path, "of its directory")?;
    // Only the owner can replace a file there, as in /tmp.
    fs::set_permissions(&directory.0, Permissions::from_mode(0o1777))?;
    Policy::load(&path)?;
    Ok(())
}

fn a_policy_of_another_user_is_refused() -> Result<()> {
    let directory = Directory::new()?;
    let path = written(&directory, TEXT.as_bytes(), 0o600)?;
    give_away(&path)?;
    refused_because(&path, "uid 65534 owns it")?;
    let path = directory.path("below");
    fs::create_dir(&path)?;
    fs::write(path.join("broker.toml"), TEXT)?;
    give_away(&path)?;
    refused_because(&path.join("broker.toml"), "of its directory")
}

fn what_is_no_file_is_refused() -> Result<()> {
    let directory = Directory::new()?;
    refused_because(&directory.path("nosuch"), "No such file")?;
    refused_because(&directory.0, "no regular file")?;
    let pipe = directory.path("pipe");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0)?;
    // Nobody is at its other end: it does not wait.
    let (to_us, refused) = std::sync::mpsc::channel();
    std::thread::spawn(move || to_us.send(refused_because(&pipe, "no regular file").is_ok()));
    assert_eq!(refused.recv_timeout(Duration::from_secs(10)), Ok(true));
    Ok(())
}

fn all_faults_are_told() -> Result<()> {
    let directory = Directory::new()?;
    let path = written(&directory, b"[[tenant]]\nnam = 'a'\nuid = true\n", 0o600)?;
    let file = path.display();
    refused_because(&path, &format!("{file}:1:1: a tenant needs `name`"))?;
    refused_because(&path, &format!("{file}:2:1: a tenant has no key `nam`"))?;
    refused_because(&path, "    uid = true\n          ^^^^")?;
    let path = written(&directory, &vec![b'#'; (1 << 20) + 1], 0o600)?;
    refused_because(&path, "at most 1 MiB")?;
    let path = written(&directory, &vec![b'#'; 1 << 20], 0o600)?;
    Policy::load(&path)?;
    Ok(())
}

fn the_packaged_policy_admits_nobody() -> Result<()> {
    let text = include_bytes!("../../../../packaging/broker.toml");
    let names = Names::default();
    let checked = Policy::check(text, &names);
    assert_eq!(checked.policy, Ok(Policy::default()));
    // Its examples are right as well, apart from their users, who are not on every host.
    let text = std::str::from_utf8(text)?;
    let is_key = |line: &str| line.contains('=') || line.starts_with('[');
    let examples = text.lines().filter_map(|line| line.strip_prefix('#'));
    let examples = examples.filter(|line| !line.starts_with(' ') && is_key(line));
    let examples = examples.collect::<Vec<_>>().join("\n");
    let checked = Policy::check(examples.as_bytes(), &names);
    assert_eq!(checked.notes, []);
    assert!(valid(checked)?.tenants.len() > 1);
    Ok(())
}

fn valid(checked: Checked) -> Result<Policy> {
    let render = |errors: Vec<Diagnostic>| -> String {
        errors.iter().map(|it| it.render("text", "")).collect()
    };
    Ok(checked.policy.map_err(render)?)
}

/// The texts that follow `start` on a page, up to `end`.
fn blocks<'a>(page: &'a str, start: &str, end: &'a str) -> impl Iterator<Item = &'a str> {
    let blocks: Vec<_> = page.split(start).skip(1).collect();
    blocks
        .into_iter()
        .filter_map(move |block| block.split(end).next())
}

/// The error of an unknown key names all known keys.
fn the_guide_has_every_key() -> Result<()> {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/src/broker");
    let page = fs::read_to_string(guide.join("policy.md"))?;
    let unknown = "[[tenant]]\nzzz = 1\nlimits.zzz = 1\n[[tenant.device]]\nzzz = 1\nbusy-poll.zzz = 1\nfilter = { zzz = 1 }\n\
                   [tenant.calls]\nzzz = 1\nmount.zzz = 1\nconnect = { zzz = 1 }\n";
    let checked = Policy::check(unknown.as_bytes(), &Names::default());
    let errors = checked.policy.err().unwrap_or_default();
    let lists = errors
        .iter()
        .filter_map(|error| error.message.split_once("`zzz`: its keys are "));
    let keys: Vec<&str> = lists.flat_map(|(_, keys)| keys.split(", ")).collect();
    assert!(keys.len() > 40, "{keys:?}");
    for key in keys {
        let is_there = page.contains(&format!("`{key}`")) || page.contains(&format!("{key} = "));
        assert!(is_there, "the guide has no {key}");
    }
    Ok(())
}

fn the_policies_of_the_documentation_are_valid() -> Result<()> {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/src/broker");
    let mut texts = Vec::new();
    for directory in [guide.clone(), guide.join("calls")] {
        for page in fs::read_dir(directory)? {
            let path = page?.path();
            if path.extension().is_some_and(|it| it == "md") {
                let page = fs::read_to_string(path)?;
                texts.extend(blocks(&page, "```toml\n", "```").map(str::to_owned));
            }
        }
    }
    let pages = texts.len();
    let readme = include_str!("../../../../README.md");
    texts.extend(blocks(readme, "cat /etc/weir/broker.toml\n", "$").map(str::to_owned));
    assert!(pages > 8 && texts.len() == pages + 1, "{texts:?}");
    let names = Names::new("nobody:x:65534:65534::/:/bin/false\n", "");
    for text in texts {
        let checked = Policy::check(text.as_bytes(), &names);
        assert_eq!(checked.notes, [], "{text}");
        valid(checked)?;
    }
    Ok(())
}
