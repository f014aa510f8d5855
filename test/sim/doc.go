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
// Every call to a store and every frame takes a time of its own, so that this is
// rarely two events of weight; TestRepeats counts how often the log comes out the
// same.
package sim
