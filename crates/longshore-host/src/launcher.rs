//! Who started this process as one of many: the rank variables of launchers.
//!
//! A rank variable left over from an outer layer must not win over the launcher that made this
//! process: `mpirun` inside a batch job sees the variables of both. The innermost comes first.

use serde::{Deserialize, Serialize};

/// A program that starts ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LauncherKind {
    /// Open MPI's `mpirun`: ORTE (4) or PRRTE (5).
    OpenMpi,
    /// The hydra process manager of MPICH.
    Hydra,
    /// Intel MPI's hydra.
    IntelMpi,
    /// MVAPICH's `mpirun_rsh`.
    Mvapich,
    /// HPE's PALS: `mpiexec` and `aprun` on Cray EX.
    Pals,
    /// Slurm's `srun`.
    Slurm,
    /// Flux.
    Flux,
    /// IBM's `jsrun`.
    Jsrun,
    /// Any PMIx server that none of the above claims.
    Pmix,
    /// Any PMI server that none of the above claims.
    Pmi,
}

impl LauncherKind {
    /// The name that people use.
    pub fn name(self) -> &'static str {
        match self {
            LauncherKind::OpenMpi => "Open MPI mpirun",
            LauncherKind::Hydra => "hydra",
            LauncherKind::IntelMpi => "Intel MPI hydra",
            LauncherKind::Mvapich => "MVAPICH mpirun_rsh",
            LauncherKind::Pals => "PALS",
            LauncherKind::Slurm => "Slurm srun",
            LauncherKind::Flux => "Flux",
            LauncherKind::Jsrun => "jsrun",
            LauncherKind::Pmix => "PMIx",
            LauncherKind::Pmi => "PMI",
        }
    }
}

/// One launcher's view of this process; a number is `None` where it does not export it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launcher {
    /// Who started the rank.
    pub kind: LauncherKind,
    /// Rank in the job step.
    pub rank: u64,
    /// Ranks of the job step.
    pub size: Option<u64>,
    /// Rank among those of this node.
    pub local_rank: Option<u64>,
    /// Ranks on this node.
    pub local_size: Option<u64>,
    /// The job, as the launcher names it.
    pub job: Option<String>,
    /// The step within the job.
    pub step: Option<String>,
}

/// The allocation of a scheduler that this process runs in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchJob {
    /// `slurm`, `pbs`, `lsf`, `flux`, `grid-engine`, `cobalt`.
    pub scheduler: String,
    /// The job's id.
    pub id: String,
}

/// Finds the launchers that left their variables in `env`, the innermost first.
///
/// Give it the whole environment; variables of no launcher are passed over.
pub fn launchers(env: &[(&str, &str)]) -> Vec<Launcher> {
    let vars = Vars(env);
    let number = |name: &str| vars.number(name);
    let text = |names: &[&str]| names.iter().find_map(|name| vars.text(name));
    let mut found = Vec::new();

    if let Some(rank) = number("JSM_NAMESPACE_RANK") {
        found.push(Launcher {
            kind: LauncherKind::Jsrun,
            rank,
            size: number("JSM_NAMESPACE_SIZE"),
            local_rank: number("JSM_NAMESPACE_LOCAL_RANK"),
            local_size: number("JSM_NAMESPACE_LOCAL_SIZE"),
            job: text(&["LSB_JOBID"]),
            step: text(&["CSM_STEP_ID", "JSM_JSRUN_ID"]),
        });
    } else if let Some(rank) = number("OMPI_COMM_WORLD_RANK") {
        found.push(Launcher {
            kind: LauncherKind::OpenMpi,
            rank,
            size: number("OMPI_COMM_WORLD_SIZE"),
            local_rank: number("OMPI_COMM_WORLD_LOCAL_RANK"),
            local_size: number("OMPI_COMM_WORLD_LOCAL_SIZE"),
            job: text(&["PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"]),
            step: None,
        });
    }
    if let Some(rank) = number("PALS_RANKID") {
        found.push(Launcher {
            kind: LauncherKind::Pals,
            rank,
            size: number("PALS_SIZE").or_else(|| number("PMI_SIZE")),
            local_rank: number("PALS_LOCAL_RANKID").or_else(|| number("PMI_LOCAL_RANK")),
            local_size: number("PALS_LOCAL_SIZE").or_else(|| number("PMI_LOCAL_SIZE")),
            job: text(&["PBS_JOBID", "SLURM_JOB_ID"]),
            step: text(&["PALS_APID"]),
        });
    }
    if let Some(rank) = number("MV2_COMM_WORLD_RANK") {
        found.push(Launcher {
            kind: LauncherKind::Mvapich,
            rank,
            size: number("MV2_COMM_WORLD_SIZE"),
            local_rank: number("MV2_COMM_WORLD_LOCAL_RANK"),
            local_size: number("MV2_COMM_WORLD_LOCAL_SIZE"),
            job: text(&["MPISPAWN_ID", "PMI_ID"]),
            step: None,
        });
    }
    // MPI_LOCALRANKID is hydra's own; `srun --mpi=pmi2` exports PMI_RANK without it.
    if let (Some(rank), Some(local_rank)) = (number("PMI_RANK"), number("MPI_LOCALRANKID")) {
        let intel = vars.text("I_MPI_HYDRA_UUID").is_some();
        found.push(Launcher {
            kind: if intel {
                LauncherKind::IntelMpi
            } else {
                LauncherKind::Hydra
            },
            rank,
            size: number("PMI_SIZE"),
            local_rank: Some(local_rank),
            local_size: number("MPI_LOCALNRANKS"),
            job: text(&["I_MPI_HYDRA_UUID", "PMI_JOBID"]),
            step: None,
        });
    }
    if let Some(rank) = number("FLUX_TASK_RANK") {
        found.push(Launcher {
            kind: LauncherKind::Flux,
            rank,
            size: number("FLUX_JOB_SIZE"),
            local_rank: number("FLUX_TASK_LOCAL_ID"),
            local_size: None,
            job: text(&["FLUX_JOB_ID"]),
            step: None,
        });
    }
    // A batch script has SLURM_PROCID=0 too, but no step: it is the allocation, not a rank.
    if let (Some(rank), Some(step)) = (
        number("SLURM_PROCID"),
        text(&["SLURM_STEP_ID", "SLURM_STEPID"]),
    ) {
        found.push(Launcher {
            kind: LauncherKind::Slurm,
            rank,
            size: number("SLURM_STEP_NUM_TASKS").or_else(|| number("SLURM_NTASKS")),
            local_rank: number("SLURM_LOCALID"),
            local_size: vars
                .text("SLURM_STEP_TASKS_PER_NODE")
                .and_then(|list| nth_repeated(&list, number("SLURM_NODEID").unwrap_or(0))),
            job: text(&["SLURM_JOB_ID", "SLURM_JOBID"]),
            step: Some(step),
        });
    }
    if found.is_empty() {
        if let Some(rank) = number("PMIX_RANK") {
            found.push(Launcher {
                kind: LauncherKind::Pmix,
                rank,
                size: None,
                local_rank: None,
                local_size: None,
                job: text(&["PMIX_NAMESPACE"]),
                step: None,
            });
        } else if let Some(rank) = number("PMI_RANK") {
            found.push(Launcher {
                kind: LauncherKind::Pmi,
                rank,
                size: number("PMI_SIZE"),
                local_rank: number("PMI_LOCAL_RANK"),
                local_size: number("PMI_LOCAL_SIZE"),
                job: text(&["PMI_JOBID"]),
                step: None,
            });
        }
    }
    found
}

/// Finds the allocations that `env` tells of.
pub fn batch_jobs(env: &[(&str, &str)]) -> Vec<BatchJob> {
    let vars = Vars(env);
    let schedulers: [(&str, &[&str]); 6] = [
        ("slurm", &["SLURM_JOB_ID", "SLURM_JOBID"]),
        ("pbs", &["PBS_JOBID"]),
        ("lsf", &["LSB_JOBID"]),
        ("flux", &["FLUX_JOB_ID"]),
        ("cobalt", &["COBALT_JOBID"]),
        ("grid-engine", &["JOB_ID"]),
    ];
    schedulers
        .into_iter()
        // JOB_ID alone could be anybody's.
        .filter(|(name, _)| *name != "grid-engine" || vars.text("SGE_ROOT").is_some())
        .filter_map(|(name, ids)| {
            Some(BatchJob {
                scheduler: name.to_owned(),
                id: ids.iter().find_map(|id| vars.text(id))?,
            })
        })
        .collect()
}

/// Whether a variable is one that [`launchers`] or [`batch_jobs`] may read.
pub(crate) fn is_launcher_variable(name: &str) -> bool {
    const NAMES: [&str; 52] = [
        "JSM_NAMESPACE_RANK",
        "JSM_NAMESPACE_SIZE",
        "JSM_NAMESPACE_LOCAL_RANK",
        "JSM_NAMESPACE_LOCAL_SIZE",
        "JSM_JSRUN_ID",
        "CSM_STEP_ID",
        "LSB_JOBID",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
        "OMPI_MCA_ess_base_jobid",
        "PMIX_NAMESPACE",
        "PMIX_RANK",
        "PALS_RANKID",
        "PALS_SIZE",
        "PALS_LOCAL_RANKID",
        "PALS_LOCAL_SIZE",
        "PALS_APID",
        "PMI_RANK",
        "PMI_SIZE",
        "PMI_LOCAL_RANK",
        "PMI_LOCAL_SIZE",
        "PMI_JOBID",
        "PMI_ID",
        "MV2_COMM_WORLD_RANK",
        "MV2_COMM_WORLD_SIZE",
        "MV2_COMM_WORLD_LOCAL_RANK",
        "MV2_COMM_WORLD_LOCAL_SIZE",
        "MPISPAWN_ID",
        "MPI_LOCALRANKID",
        "MPI_LOCALNRANKS",
        "I_MPI_HYDRA_UUID",
        "FLUX_TASK_RANK",
        "FLUX_TASK_LOCAL_ID",
        "FLUX_JOB_SIZE",
        "FLUX_JOB_ID",
        "SLURM_PROCID",
        "SLURM_STEP_ID",
        "SLURM_STEPID",
        "SLURM_STEP_NUM_TASKS",
        "SLURM_STEP_TASKS_PER_NODE",
        "SLURM_NTASKS",
        "SLURM_NODEID",
        "SLURM_LOCALID",
        "SLURM_JOB_ID",
        "SLURM_JOBID",
        "PBS_JOBID",
        "COBALT_JOBID",
        "JOB_ID",
        "SGE_ROOT",
        "SLURM_JOB_NODELIST",
    ];
    NAMES.contains(&name)
}

struct Vars<'e>(&'e [(&'e str, &'e str)]);

impl Vars<'_> {
    fn text(&self, name: &str) -> Option<String> {
        let (_, value) = self.0.iter().find(|(known, _)| *known == name)?;
        (!value.is_empty()).then(|| (*value).to_owned())
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }
}

/// The value at `index` of a list with repetitions, as Slurm writes it: `2(x3),1`.
fn nth_repeated(list: &str, index: u64) -> Option<u64> {
    let mut left = index;
    for part in list.split(',') {
        let (value, times) = match part.split_once("(x") {
            Some((value, times)) => (value, times.strip_suffix(')')?.parse().ok()?),
            None => (part, 1_u64),
        };
        if left < times {
            return value.parse().ok();
        }
        left -= times;
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn srun_with_pmi2_is_slurm_and_not_hydra() {
        let env = [
            ("PMI_RANK", "3"),
            ("PMI_SIZE", "7"),
            ("SLURM_PROCID", "3"),
            ("SLURM_NTASKS", "7"),
            ("SLURM_LOCALID", "1"),
            ("SLURM_NODEID", "1"),
            ("SLURM_STEP_TASKS_PER_NODE", "2(x3),1"),
            ("SLURM_JOB_ID", "41"),
            ("SLURM_STEP_ID", "0"),
        ];
        let found = launchers(&env);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].kind, LauncherKind::Slurm);
        assert_eq!((found[0].rank, found[0].size), (3, Some(7)));
        assert_eq!(
            (found[0].local_rank, found[0].local_size),
            (Some(1), Some(2))
        );
        assert_eq!(batch_jobs(&env)[0].id, "41");
    }

    #[test]
    fn a_batch_script_is_an_allocation_and_not_a_rank() {
        let env = [
            ("SLURM_PROCID", "0"),
            ("SLURM_JOB_ID", "41"),
            ("SLURM_NTASKS", "8"),
        ];
        assert!(launchers(&env).is_empty());
        assert_eq!(batch_jobs(&env)[0].scheduler, "slurm");
    }

    #[test]
    fn mpirun_in_a_step_of_slurm_comes_first() {
        let env = [
            ("SLURM_PROCID", "0"),
            ("SLURM_STEP_ID", "2"),
            ("OMPI_COMM_WORLD_RANK", "5"),
            ("OMPI_COMM_WORLD_SIZE", "8"),
            ("PMIX_RANK", "5"),
        ];
        let kinds: Vec<LauncherKind> = launchers(&env).iter().map(|one| one.kind).collect();
        assert_eq!(kinds, [LauncherKind::OpenMpi, LauncherKind::Slurm]);
    }

    #[test]
    fn hydra_of_intel_is_told_from_that_of_mpich() {
        let mut env = vec![
            ("PMI_RANK", "0"),
            ("PMI_SIZE", "2"),
            ("MPI_LOCALRANKID", "0"),
        ];
        assert_eq!(launchers(&env)[0].kind, LauncherKind::Hydra);
        env.push(("I_MPI_HYDRA_UUID", "aa"));
        assert_eq!(launchers(&env)[0].kind, LauncherKind::IntelMpi);
    }

    #[test]
    fn every_variable_that_is_read_is_on_the_list_for_recording() {
        let source = include_str!("launcher.rs");
        let body = source
            .split("pub(crate) fn is_launcher_variable")
            .next()
            .expect("above");
        for word in body.split('"').skip(1).step_by(2) {
            let capital = |letter: char| letter.is_ascii_uppercase() || letter == '_';
            let variable = word.contains('_')
                && word
                    .chars()
                    .all(|letter| capital(letter) || letter.is_ascii_digit());
            assert!(!variable || is_launcher_variable(word), "{word}");
        }
    }

    proptest! {
        #[test]
        fn any_list_is_read_without_panic(list in "[0-9(x),]{0,40}", index: u64) {
            nth_repeated(&list, index);
        }
    }
}
