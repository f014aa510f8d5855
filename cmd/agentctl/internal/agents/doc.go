// Package agents is `agentctl agent`: it registers, shows, changes and removes the Agents of
// a hub, and says before a change what it would cost. What an Agent means is left to
// api/v1alpha1 and the principal.
package agents
