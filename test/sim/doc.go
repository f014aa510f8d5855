// Package sim runs a hub and the spokes of several agents in one process: real
// Mirrors over backends/memory and an in-memory carrier of Frames, under the
// virtual time of testing/synctest.
//
// A history is a Trace: a list of commands, one a line, of what people,
// controllers and fate do. Generate draws one from a seed, Run carries it out.
// All chance in between (delays, the order of deliveries, which call fails) is
// drawn from the seed that each command carries, so a list from which lines were
// taken still runs much like the whole. What the stores accepted is a Log; Check
// is a pure function from a Log to the invariants that it breaks. Shrink makes a
// failing list short; what it prints goes into a file of testdata, which
// TestTraces replays.
//
// A run repeats but for what the Go scheduler decides among goroutines that are
// ready at the same instant of virtual time, and for the random ids of commands.
// Every call to a store, every delivery and every frame has an instant of its own,
// so this is seldom two events of weight. Of 20 drawn histories 13 came out the same
// twice, to the nanosecond, and four fifths of all lines were written before the
// first difference, which is most often in a burst; TestRepeats counts it. Minimal
// traces repeat nearly always.
//
// In every second history the managed agents share a namespace, and have their
// Applications by destination.
//
// Several agents may be on one Kubernetes cluster (clusters.go): each is beside an Argo CD
// of its own, and managed ones that share a namespace on the hub share one there.
//
// Agents may be deleted (departure.go), with what they have or without; a hub of which one
// was deleted is not restored.
//
// The stores are the hub's and each spoke's. The hub's history is checked and
// continued by the principal's own code (fleet/continuity, fleet.NextHistory); history.go only
// calls it, over a store. A restore that is younger
// than a token, and a spoke rebuilt before the first, cannot be seen by design, so
// commands that would bring that about do nothing.
package sim
