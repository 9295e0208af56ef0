//! Consistency of the files of packaging/kubernetes with each other and with the rest. The operator's schema says
//! whether it accepts them; `cluster/kubernetes.rs` tests them on servers.

use yaml_rust2::{Yaml, YamlLoader};

use crate::{read, regex};

const FOLDER: &str = "packaging/kubernetes";

/// The only document of a file.
pub fn parse(path: &str, text: &str) -> Yaml {
    let mut documents = YamlLoader::load_from_str(text).unwrap_or_else(|error| panic!("{path}: {error}"));
    assert_eq!(documents.len(), 1, "{path}");
    documents.remove(0)
}

fn manifest(name: &str) -> Yaml {
    let path = format!("{FOLDER}/{name}");
    parse(&path, &read(&path))
}

/// The value at a path of keys, in which numbers are list items.
fn at<'a>(yaml: &'a Yaml, path: &str) -> &'a Yaml {
    path.split('.').fold(yaml, |yaml, key| match key.parse::<usize>() {
        Ok(number) => &yaml[number],
        Err(_) => &yaml[key],
    })
}

fn text<'a>(yaml: &'a Yaml, path: &str) -> &'a str {
    at(yaml, path).as_str().unwrap_or_else(|| panic!("no text at {path}"))
}

/// What a pattern with one group matches in a file.
fn said(path: &str, pattern: &str) -> String {
    regex(pattern).captures(&read(path)).unwrap_or_else(|| panic!("{path} has no {pattern}"))[1].to_owned()
}

/// The image, the Cluster that mounts it and the Database that creates the extension have the version in Cargo.toml,
/// and the same PostgreSQL.
#[test]
fn the_image_and_the_manifests_are_of_one_version() {
    let dockerfile = format!("{FOLDER}/Dockerfile");
    let version = said("Cargo.toml", r#"(?m)^version = "(.*)""#);
    let major = said(&dockerfile, "(?m)^ARG PG=(.*)$");
    let image = format!("registry.example.com/idgen:{version}-{major}");
    assert_eq!(said(&dockerfile, "(?m)^ARG VERSION=(.*)$"), version);
    let cluster = manifest("cluster.yaml");
    assert_eq!(text(&cluster, "spec.postgresql.extensions.0.image.reference"), image);
    assert_eq!(text(&manifest("database.yaml"), "spec.extensions.0.version"), version);
    assert!(text(&cluster, "spec.imageName").contains(&format!("postgresql:{major}-")));
    for (path, said) in [
        (&*dockerfile, format!("-t {image} ")),
        (&dockerfile, format!(".build/dist/{major}")),
        ("docs/kubernetes.md", image.clone()),
    ] {
        assert!(read(path).contains(&said), "{path} does not say {said}");
    }
}

/// The Database belongs to the Cluster, and both use the extension's own name for itself and its library. The Cluster
/// has the settings that keep the promise across a failover, of which docs/kubernetes.md says why, and all settings are
/// in the reference, which a SQL test compares with the server.
#[test]
fn the_manifests_fit_together() {
    let (cluster, database) = (manifest("cluster.yaml"), manifest("database.yaml"));
    for (of_cluster, of_database) in [
        ("apiVersion", "apiVersion"),
        ("metadata.name", "spec.cluster.name"),
        ("spec.bootstrap.initdb.database", "spec.name"),
        ("spec.bootstrap.initdb.owner", "spec.owner"),
        ("spec.postgresql.extensions.0.name", "spec.extensions.0.name"),
        ("spec.postgresql.shared_preload_libraries.0", "spec.extensions.0.name"),
    ] {
        assert_eq!(text(&cluster, of_cluster), text(&database, of_database), "{of_cluster}, {of_database}");
    }
    let synchronous = at(&cluster, "spec.postgresql.synchronous");
    assert_eq!(text(synchronous, "dataDurability"), "required");
    assert_eq!(at(synchronous, "failoverQuorum").as_bool(), Some(true));
    assert_eq!(at(&cluster, "spec.instances").as_i64(), Some(3));
    let parameters = at(&cluster, "spec.postgresql.parameters").as_hash().expect("parameters");
    let reference = read("docs/reference.md");
    for name in parameters.keys().filter_map(Yaml::as_str).filter(|name| name.starts_with("idgen.")) {
        assert!(reference.contains(&format!("\n| `{name}` | ")), "there is no {name}");
    }
}
