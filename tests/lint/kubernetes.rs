//! Consistency of the files of packaging/kubernetes with each other and with the rest. The operator's schema says
//! whether it accepts them; `cluster/kubernetes.rs` tests them on servers.

use yaml_rust2::{Yaml, YamlLoader};

use crate::read;

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

fn text(yaml: &Yaml, path: &str) -> String {
    at(yaml, path).as_str().unwrap_or_else(|| panic!("no text at {path}")).to_owned()
}

/// The default of a build argument of the image.
fn argument(dockerfile: &str, name: &str) -> String {
    let prefix = format!("ARG {name}=");
    let line = dockerfile.lines().find_map(|line| line.strip_prefix(&prefix));
    line.unwrap_or_else(|| panic!("no {prefix}")).to_owned()
}

/// The image, the Cluster that mounts it and the Database that creates the extension have the version in Cargo.toml,
/// and the same PostgreSQL.
#[test]
fn the_image_and_the_manifests_are_of_one_version() {
    let cargo = read("Cargo.toml");
    let version =
        cargo.lines().find_map(|line| line.strip_prefix("version = ")).expect("a version").trim_matches('"');
    let dockerfile = read(&format!("{FOLDER}/Dockerfile"));
    let cluster = manifest("cluster.yaml");
    let major = argument(&dockerfile, "PG");
    let image = format!("registry.example.com/idgen:{version}-{major}");
    assert_eq!(argument(&dockerfile, "VERSION"), version);
    assert_eq!(text(&cluster, "spec.postgresql.extensions.0.image.reference"), image);
    assert_eq!(text(&manifest("database.yaml"), "spec.extensions.0.version"), version);
    assert!(text(&cluster, "spec.imageName").contains(&format!("postgresql:{major}-")));
    for (name, said) in [
        ("Dockerfile", format!("-t {image} ")),
        ("Dockerfile", format!(".build/dist/{major}")),
        ("../../docs/kubernetes.md", image.clone()),
    ] {
        assert!(read(&format!("{FOLDER}/{name}")).contains(&said), "{name} does not say {said}");
    }
}

/// The Database belongs to the Cluster, and both use the extension's own names for itself, its library and its schema.
#[test]
fn the_manifests_fit_together() {
    let (cluster, database) = (manifest("cluster.yaml"), manifest("database.yaml"));
    assert_eq!(text(&cluster, "kind") + &text(&database, "kind"), "ClusterDatabase");
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
    assert_eq!(text(&database, "spec.schemas.0.name"), text(&database, "spec.extensions.0.schema"));
    assert!(read("idgen.control").contains("module_pathname = 'idgen'"));
}

/// The reference documents every setting of idgen in the manifest. A SQL test compares the reference with the server.
#[test]
fn the_settings_of_the_manifest_are_there() {
    let (cluster, reference) = (manifest("cluster.yaml"), read("docs/reference.md"));
    let parameters = at(&cluster, "spec.postgresql.parameters").as_hash().expect("parameters");
    let names = parameters.keys().filter_map(Yaml::as_str).filter(|name| name.starts_with("idgen."));
    let missing: Vec<&str> =
        names.clone().filter(|name| !reference.contains(&format!("\n| `{name}` | "))).collect();
    assert!(names.count() > 0);
    assert_eq!(missing, [""; 0]);
    assert!(parameters.values().all(|value| value.as_str().is_some()), "the operator takes texts only");
}

/// The manifest has the settings that keep the promise across a failover; docs/kubernetes.md says why.
#[test]
fn a_failover_is_without_doubt() {
    let cluster = manifest("cluster.yaml");
    let synchronous = at(&cluster, "spec.postgresql.synchronous");
    assert_eq!(text(synchronous, "dataDurability"), "required");
    assert_eq!(at(synchronous, "failoverQuorum").as_bool(), Some(true));
    assert_eq!(at(&cluster, "spec.instances").as_i64(), Some(3));
}
