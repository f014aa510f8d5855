// Package mesh is `agentctl mesh`: it renders, compares and applies what the mesh around a
// principal needs, and verifies it. What that is stands in mesh/istio and mesh/spire.
package mesh
