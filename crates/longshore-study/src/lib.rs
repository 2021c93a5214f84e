//! Samples, statistics, verdicts and reports of side-by-side studies.
