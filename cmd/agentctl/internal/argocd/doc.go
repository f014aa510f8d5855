// Package argocd is the Argo CD beside which one side of Argomesh is installed: what it has, the
// values of our chart that follow from it, and the one setting of it that agentctl changes, the
// Redis of argocd-server on the hub.
package argocd
