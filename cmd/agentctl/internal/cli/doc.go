// Package cli is what the commands of agentctl share: flags and their completion, the
// connection to the cluster of a kubeconfig, forms of output, questions to a person, and
// errors that say what to do. What is printed goes through [NewPlain], so that a terminal obeys
// no one else. Nothing here knows a command.
package cli
