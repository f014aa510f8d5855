package main

import "os"

// replica names this process among the replicas of the principal.
func replica() string {
	name, err := os.Hostname()
	if err != nil {
		return "principal"
	}
	return name
}
