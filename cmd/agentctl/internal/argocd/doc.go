// Package argocd is the Argo CD beside which one side of Argomesh is installed: what it has, the
// values of our chart that follow from it, and the settings of it that agentctl changes on the hub: arguments of
// argocd-server, and, if a person says so, that terminals are offered.
package argocd
