// Package agents tests end to end: registering, changing, suspending and deleting by agentctl, the cluster Secret and its token, departures, and SPIRE registrations that belong to an agent.
//
// README.md tells what it runs on.
package agents
