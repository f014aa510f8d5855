// Package controller keeps what a hub derives from its Agents: the cluster
// Secret through which Argo CD knows each agent as a cluster, and the status of
// each Agent. It is level-based: whatever changed, an Agent is looked at as a
// whole and brought to where it should be. Who may connect is decided by package
// fleet; the streams themselves are left to package stream/server, which tells
// of them through Sessions. What becomes of the Applications of a deleted Agent is
// Teardown's part.
//
//	c, err := controller.New(controller.Config{
//		Client:    client,
//		Namespace: "argocd",
//		ProxyURL:  "https://argomesh-resource-proxy:9090",
//		Sessions:  sessions,
//		Teardown:    teardown, // what the end of an Agent means for the hub's objects
//		Metrics:   registry,
//		Log:       log,
//	})
//	err = c.Run(ctx) // until ctx is done
package controller
