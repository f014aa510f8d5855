// Command hub links some packages.
package main

import (
	"house/store"
	"house/way"
)

func main() { way.Door(store.Memory{}, "") }
