// Package check is `agentctl check`: it looks at hub and spoke, and says of what is wrong what it
// is, and what helps.
//
// [Observe] reads one side, once; the checks are pure, and decide by what was read. What could not
// be read is unknown, with the reason, and never well.
package check
