// Package redis is what Argo CD keeps of an Application in its Redis, shown on the
// hub: the tree and the managed resources of an Application that runs on a spoke are
// in the Redis of that spoke, and Argo CD's server on the hub asks its own.
//
// A [Hub] takes the hub's Argo CD as its Redis would. Each connection has one of its
// own to the hub's Redis, where every command goes, so that AUTH, HELLO, transactions
// and subscriptions are Redis' own. A key ([appkey.Key]) of an Application that belongs to an agent
// is answered by the agent's [spoke.Spoke] instead, once the hub's Redis has let the caller
// use it. What can be done with such a key is GET, MGET, EXISTS, TTL, SUBSCRIBE and
// UNSUBSCRIBE; the rest is an error that says so.
//
// Who owns an Application is left to anyone who implements [OwnerResolver], the way to the
// spoke to a dial function, and TLS to the proxy in front.
//
//	hub, err := redis.NewHub(redis.HubConfig{
//		DialRedis: dialHubRedis, DialSpoke: dialSpoke, Owners: owners, LastKnown: store, Metrics: registry, Log: log,
//	})
//	err = hub.Run(ctx, listener) // until ctx is done
package redis
