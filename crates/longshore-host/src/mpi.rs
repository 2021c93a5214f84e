//! Which MPI installations the host has, as far as can be seen without running them.
//!
//! They are looked for where users and sites leave traces: variables of a loaded module, the
//! launcher and compiler on PATH, the loader's cache. Which of them a program can use is decided by
//! symbols elsewhere; here is only what lies where.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::node::Node;

/// Whose binary interface the installation has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MpiFamily {
    /// MPICH itself.
    Mpich,
    /// Intel MPI; MPICH's binary interface.
    IntelMpi,
    /// Cray MPICH; MPICH's binary interface.
    CrayMpich,
    /// MVAPICH; MPICH's binary interface.
    Mvapich,
    /// Open MPI.
    OpenMpi,
    /// Known to be an MPI, not which.
    Unknown,
}

impl MpiFamily {
    /// The name that people use.
    pub fn name(self) -> &'static str {
        match self {
            MpiFamily::Mpich => "MPICH",
            MpiFamily::IntelMpi => "Intel MPI",
            MpiFamily::CrayMpich => "Cray MPICH",
            MpiFamily::Mvapich => "MVAPICH",
            MpiFamily::OpenMpi => "Open MPI",
            MpiFamily::Unknown => "MPI",
        }
    }
}

/// One installation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MpiInstall {
    /// Whose it is.
    pub family: MpiFamily,
    /// The folder that holds `bin/` and `lib/`, where it is known.
    pub prefix: Option<PathBuf>,
    /// Its MPI libraries.
    pub libraries: Vec<PathBuf>,
    /// Its launcher, if that is on PATH.
    pub launcher: Option<PathBuf>,
    /// What led to it: `MPI_HOME`, `mpirun on PATH`, `loader cache`.
    pub found_by: Vec<String>,
}

/// Programs whose place on PATH tells of an installation.
pub(crate) const PROGRAMS: [&str; 4] = ["mpirun", "mpiexec", "prterun", "mpicc"];

/// Variables that modules and vendors' scripts set to the folder of an MPI.
const PREFIX_VARIABLES: [(&str, MpiFamily); 13] = [
    ("CRAY_MPICH_DIR", MpiFamily::CrayMpich),
    ("MPICH_DIR", MpiFamily::Mpich),
    ("I_MPI_ROOT", MpiFamily::IntelMpi),
    ("OPAL_PREFIX", MpiFamily::OpenMpi),
    ("HPCX_MPI_DIR", MpiFamily::OpenMpi),
    ("EBROOTOPENMPI", MpiFamily::OpenMpi),
    ("EBROOTMPICH", MpiFamily::Mpich),
    ("EBROOTIMPI", MpiFamily::IntelMpi),
    ("EBROOTMVAPICH2", MpiFamily::Mvapich),
    ("MPI_HOME", MpiFamily::Unknown),
    ("MPI_ROOT", MpiFamily::Unknown),
    ("MPIROOT", MpiFamily::Unknown),
    ("MPI_DIR", MpiFamily::Unknown),
];

/// Whether a file name is that of an MPI's C library: `libmpi.so.40`, `libmpi_gnu_123.so.12`.
pub(crate) fn is_mpi_library(name: &str) -> bool {
    let Some((stem, _)) = name.split_once(".so") else {
        return false;
    };
    let Some(rest) = stem
        .strip_prefix("libmpi")
        .or_else(|| stem.strip_prefix("libmpich"))
    else {
        return false;
    };
    let compilers = [
        "_gnu", "_cray", "_intel", "_nvidia", "_amd", "_aocc", "_pgi",
    ];
    matches!(rest, "" | "ch" | "_abi" | "_cray" | "_ibm")
        || compilers.iter().any(|compiler| {
            rest.strip_prefix(compiler).is_some_and(|version| {
                version
                    .chars()
                    .all(|letter| letter.is_ascii_digit() || letter == '_')
            })
        })
}

pub(crate) fn derive(node: &Node) -> Vec<MpiInstall> {
    let mut installs: Vec<MpiInstall> = Vec::new();
    for (variable, family) in PREFIX_VARIABLES {
        if let Some(prefix) = node.var(variable) {
            add(node, &mut installs, Path::new(prefix), family, variable);
        }
    }
    for program in PROGRAMS {
        let Some(found) = node.observed.programs.get(program) else {
            continue;
        };
        let real = found.real.to_string_lossy();
        // PALS starts the ranks of an MPI that lies elsewhere.
        if real.contains("/pals/") {
            for install in &mut installs {
                if install.family == MpiFamily::CrayMpich && install.launcher.is_none() {
                    install.launcher = Some(found.path.clone());
                }
            }
            continue;
        }
        let Some(prefix) = found.real.parent().and_then(Path::parent) else {
            continue;
        };
        // Debian's alternatives lead from /usr/bin/mpirun to /usr/bin/mpirun.openmpi.
        let family = match family_of_programs(node, prefix) {
            MpiFamily::Unknown => family_of_name(&real),
            family => family,
        };
        let by = format!("{program} on PATH");
        let at = add(node, &mut installs, prefix, family, &by);
        if program != "mpicc" && installs[at].launcher.is_none() {
            installs[at].launcher = Some(found.path.clone());
        }
    }
    for (soname, path) in &node.observed.libraries {
        if !is_mpi_library(soname) || installs.iter().any(|install| holds(install, path)) {
            continue;
        }
        let family = family_of_library(node, path);
        let same = installs
            .iter_mut()
            .find(|install| install.family == family && install.found_by == ["loader cache"]);
        match same {
            Some(install) => install.libraries.push(path.clone()),
            None => installs.push(MpiInstall {
                family,
                prefix: None,
                libraries: vec![path.clone()],
                launcher: None,
                found_by: vec!["loader cache".to_owned()],
            }),
        }
    }
    installs
}

fn holds(install: &MpiInstall, path: &Path) -> bool {
    install.libraries.iter().any(|library| {
        library == path
            || (library.parent() == path.parent() && path.file_name() == library.file_name())
    })
}

/// Adds an installation, or a trace to one that is known; gives its place in the list.
fn add(
    node: &Node,
    installs: &mut Vec<MpiInstall>,
    prefix: &Path,
    hint: MpiFamily,
    found_by: &str,
) -> usize {
    let libraries = libraries_below(node, prefix, hint);
    // The folder's name knows more than the variable's: Cray's modules set MPICH_DIR too.
    let family = [
        family_of_name(&prefix.to_string_lossy()),
        hint,
        family_of_programs(node, prefix),
    ]
    .into_iter()
    .chain(
        libraries
            .iter()
            .map(|library| family_of_number(node, library)),
    )
    .find(|&family| family != MpiFamily::Unknown)
    .unwrap_or(MpiFamily::Unknown);
    let (libraries, others): (Vec<_>, Vec<_>) = libraries
        .into_iter()
        .partition(|library| may_belong(node, library, family));
    let known = installs.iter().position(|install| {
        install.prefix.as_deref() == Some(prefix)
            && (install.family == family
                || family == MpiFamily::Unknown
                || install.family == MpiFamily::Unknown)
    });
    let at = known.unwrap_or_else(|| {
        installs.push(MpiInstall {
            family,
            prefix: Some(prefix.to_owned()),
            libraries,
            launcher: None,
            found_by: Vec::new(),
        });
        installs.len() - 1
    });
    let install = &mut installs[at];
    if install.family == MpiFamily::Unknown {
        install.family = family;
    }
    install.found_by.push(found_by.to_owned());
    // A Python environment may hold MPIs of both families in one folder.
    let other = others
        .first()
        .map(|library| family_of_number(node, library));
    if let Some(family) = other
        && !installs
            .iter()
            .any(|install| install.prefix.as_deref() == Some(prefix) && install.family == family)
    {
        installs.push(MpiInstall {
            family,
            prefix: Some(prefix.to_owned()),
            libraries: others,
            launcher: None,
            found_by: vec![found_by.to_owned()],
        });
    }
    at
}

/// The MPI libraries of an installation, in the folders that MPIs use.
fn libraries_below(node: &Node, prefix: &Path, hint: MpiFamily) -> Vec<PathBuf> {
    // In /usr all MPIs of a distribution meet; the loader's cache says which there are.
    if prefix == Path::new("/usr") || prefix == Path::new("/") {
        return node
            .observed
            .libraries
            .iter()
            .filter(|(soname, path)| {
                is_mpi_library(soname)
                    && hint != MpiFamily::Unknown
                    && family_of_library(node, path) == hint
            })
            .map(|(_, path)| path.clone())
            .collect();
    }
    let mut libraries: Vec<PathBuf> = Vec::new();
    let folders = [
        "lib",
        "lib64",
        "lib/release",
        "intel64/lib",
        "intel64/lib/release",
        "lib-abi-mpich",
    ];
    for below in folders {
        let folder = prefix.join(below);
        // `libmpi.so` without a number serves the compiler only.
        let names = node.names(&folder, |name| {
            is_mpi_library(name) && name.contains(".so.")
        });
        let known = |name: &str| {
            libraries
                .iter()
                .any(|library| library.file_name().is_some_and(|known| known == name))
        };
        // Where lib64 is a link to lib, everything is there twice.
        if !names.iter().all(|name| known(name)) {
            libraries.extend(names.into_iter().map(|name| folder.join(name)));
        }
    }
    libraries
}

/// The family by programs that only it brings.
fn family_of_programs(node: &Node, prefix: &Path) -> MpiFamily {
    let telltales = [
        ("impi_info", MpiFamily::IntelMpi),
        ("ompi_info", MpiFamily::OpenMpi),
        // MVAPICH is made of MPICH and brings mpichversion too.
        ("mpirun_rsh", MpiFamily::Mvapich),
        ("mpichversion", MpiFamily::Mpich),
    ];
    // Where all programs of a system meet they tell nothing of one installation.
    if is_shared(prefix) {
        return MpiFamily::Unknown;
    }
    telltales
        .into_iter()
        .find(|(program, _)| node.exists(prefix.join("bin").join(program)))
        .map_or(MpiFamily::Unknown, |(_, family)| family)
}

/// Whether a folder belongs to the whole system.
fn is_shared(prefix: &Path) -> bool {
    ["/", "/usr", "/usr/local"]
        .iter()
        .any(|shared| prefix == Path::new(shared))
}

/// Whether a library can belong to a family, by the number in its name.
fn may_belong(node: &Node, library: &Path, family: MpiFamily) -> bool {
    let by_number = family_of_number(node, library);
    match (by_number, family) {
        (MpiFamily::Unknown, _) | (_, MpiFamily::Unknown) => true,
        (MpiFamily::OpenMpi, family) => family == MpiFamily::OpenMpi,
        (_, family) => family != MpiFamily::OpenMpi,
    }
}

/// Guesses the family by the folder names, which installers choose with care.
fn family_of_name(path: &str) -> MpiFamily {
    let path = path.to_ascii_lowercase();
    let any = |words: &[&str]| words.iter().any(|word| path.contains(word));
    if any(&["/opt/cray", "cray-mpich"]) {
        MpiFamily::CrayMpich
    } else if any(&["impi", "oneapi/mpi", "intel-mpi", "intel/mpi", "intel64"]) {
        MpiFamily::IntelMpi
    } else if path.contains("mvapich") {
        MpiFamily::Mvapich
    } else if any(&["openmpi", "open-mpi", "ompi", "hpcx", "prte", "orte"]) {
        MpiFamily::OpenMpi
    } else if any(&["mpich", "hydra"]) {
        MpiFamily::Mpich
    } else {
        MpiFamily::Unknown
    }
}

fn family_of_library(node: &Node, path: &Path) -> MpiFamily {
    let by_name = family_of_name(&path.to_string_lossy());
    if by_name != MpiFamily::Unknown {
        return by_name;
    }
    family_of_number(node, path)
}

/// The family by the number of the library's name.
fn family_of_number(node: &Node, path: &Path) -> MpiFamily {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // The standard's own library is offered by all of them.
    if name.contains("_abi") {
        return MpiFamily::Unknown;
    }
    let number = name.split(".so.").nth(1).unwrap_or_default();
    let major = number.split('.').next().unwrap_or_default();
    match major {
        // Open MPI 2 to 6. Its 1.10 shares number 12 with MPICH and is told apart by its run time.
        "40" | "20" | "1" => MpiFamily::OpenMpi,
        "12" => {
            let folder = path.parent().unwrap_or(Path::new("/"));
            let beside = node.names(folder, |name| name.starts_with("libopen-rte.so.12"));
            if beside.is_empty() {
                MpiFamily::Mpich
            } else {
                MpiFamily::OpenMpi
            }
        }
        _ => MpiFamily::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_c_libraries_are_told_from_bindings_and_plug_ins() {
        for name in [
            "libmpi.so.40",
            "libmpich.so.12",
            "libmpi.so.12.2.2",
            "libmpi_abi.so.1",
            "libmpi_gnu_123.so.12",
            "libmpi_cray.so.12",
        ] {
            assert!(is_mpi_library(name), "{name}");
        }
        for name in [
            "libmpifort.so.12",
            "libmpi_mpifh.so.40",
            "libmpi_cxx.so.40",
            "libmpi_gtl_cuda.so.0",
            "libmpi",
            "libmpc.so.3",
        ] {
            assert!(!is_mpi_library(name), "{name}");
        }
    }

    #[test]
    fn an_intel_mpi_is_known_in_a_folder_that_does_not_say_so() {
        let folder = tempfile::tempdir().expect("temp can be written");
        for file in [
            "trials.json",
            "env",
            "srv/a/bin/impi_info",
            "srv/a/lib/libmpi.so.12",
            "srv/a/lib64/libmpi.so.12",
            "srv/a/lib/libmpi_abi.so.1",
            "srv/a/lib/libmpi.so.40",
        ] {
            let path = folder.path().join(file);
            let content = match file {
                "trials.json" => "{}",
                "env" => "MPI_HOME=/srv/a\n",
                _ => "",
            };
            std::fs::create_dir_all(path.parent().expect("below the folder")).expect("own folder");
            std::fs::write(path, content).expect("own folder");
        }
        let node = Node::recorded(folder.path()).expect("the recording is whole");
        let installs = derive(&node);
        let found: Vec<(MpiFamily, usize)> = installs
            .iter()
            .map(|install| (install.family, install.libraries.len()))
            .collect();
        assert_eq!(found, [(MpiFamily::IntelMpi, 2), (MpiFamily::OpenMpi, 1)]);
    }

    #[test]
    fn folder_names_tell_the_family() {
        let family = |path| family_of_name(path);
        assert_eq!(
            family("/opt/cray/pe/mpich/8.1.28/ofi/gnu/12.3"),
            MpiFamily::CrayMpich
        );
        assert_eq!(family("/opt/intel/oneapi/mpi/2021.19"), MpiFamily::IntelMpi);
        assert_eq!(family("/usr/bin/mpirun.openmpi"), MpiFamily::OpenMpi);
        assert_eq!(family("/usr/bin/mpiexec.hydra"), MpiFamily::Mpich);
        assert_eq!(family("/usr/local"), MpiFamily::Unknown);
    }
}
