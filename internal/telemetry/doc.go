// Package telemetry sets up what the service says about itself: structured logs and metrics.
//
// Logs are slog, as text or JSON, with a level that can be changed while the process runs.
//
// Metrics are OpenTelemetry's, shown in the Prometheus format by Metrics.Handler from a registry of their own;
// nothing is registered globally. Their names and labels are a public contract: dashboards and alerts rest on
// them, so that they are only ever added to.
//
// Invariants:
//   - No label names a peer or a subscription: the number of series is bounded by the configuration of the
//     service, not by its load. The label group holds at most MaxGroups values, further groups are summed as
//     "other".
//   - Counting never blocks and allocates nothing on the paths of every heartbeat: an atomic addition for a
//     count, two for a duration. Everything dear (walking groups, encoding) happens when somebody scrapes.
//
// Failure behaviour: a scrape that fails answers 500 and is logged; it disturbs nothing else.
//
// What it does not do: decide what is worth counting (the callers do), push anything anywhere, keep history.
package telemetry
