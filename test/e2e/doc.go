// Package e2e tests our binaries end to end: real API servers, real Argo CD, our
// principal, agents and agentctl as processes. All tests share one hub, edge-1
// (managed) and edge-2 (autonomous); each uses Applications of its own names.
package e2e
