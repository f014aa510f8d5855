// Package clusterinfo is what an Argo CD shows of a cluster: whether it is
// connected, its Kubernetes version, how many Applications run there and what the
// cache of its resources holds. Argo CD keeps it in its Redis.
//
// [Format] is the pure part: the key and the bytes. On the hub a [Writer] keeps
// the entry of each registered agent true from its live session; on a spoke a
// [Reader] reads the one entry that Argo CD's application controller writes about
// its own cluster. Who is connected is left to anyone who implements [Sessions], and
// Redis to anyone who implements [Store].
//
//	w, err := clusterinfo.NewWriter(clusterinfo.WriterConfig{
//		Store: redis, Sessions: sessions, Server: server, Metrics: registry, Log: log,
//	})
//	err = w.Run(ctx) // until ctx is done
package clusterinfo
