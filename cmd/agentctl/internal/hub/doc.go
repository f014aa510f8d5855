// Package hub is `agentctl hub`: it computes which Applications another mapping would move
// between agents, and sets it; installing is package install's.
package hub
