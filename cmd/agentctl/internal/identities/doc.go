// Package identities is `agentctl identity`: it shows and checks what the Workload API of
// this machine offers, asks a principal how it sees that, and registers identities with SPIRE.
package identities
