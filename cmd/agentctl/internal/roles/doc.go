// Package roles is what RBAC an agent needs on its spoke, by its configuration, and `agentctl agent
// role`, which prints it. Nothing is contacted.
package roles
