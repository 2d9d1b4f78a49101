package coordination

import (
	"hash/maphash"
	"slices"
)

const (
	// foldByScan is up to where comparing each with each is the fastest.
	foldByScan = 16
	// foldSlots is a table's size for longer lists; it lives on the stack. Lists of more than half of it use a map.
	foldSlots = 2048
)

// FoldDuplicates drops repeated values and keeps the order of first appearance. Without duplicates it returns the
// given slice and, up to 1,024 values, does not allocate; with them it returns a new one and leaves the old alone.
func FoldDuplicates(values []string) []string {
	at := firstDuplicate(values)
	if at < 0 {
		return values
	}
	seen := make(map[string]struct{}, len(values))
	for _, value := range values[:at] {
		seen[value] = struct{}{}
	}
	folded := slices.Clone(values[:at])
	for _, value := range values[at:] {
		if _, twice := seen[value]; twice {
			continue
		}
		seen[value] = struct{}{}
		folded = append(folded, value)
	}
	return folded
}

// firstDuplicate is the index of the first value that stands earlier too, -1 without one.
func firstDuplicate(values []string) int {
	switch {
	case len(values) <= foldByScan:
		for i, value := range values {
			if slices.Contains(values[:i], value) {
				return i
			}
		}
		return -1
	case len(values) <= foldSlots/2:
		return firstDuplicateByTable(values)
	}
	seen := make(map[string]struct{}, len(values))
	for i, value := range values {
		if _, twice := seen[value]; twice {
			return i
		}
		seen[value] = struct{}{}
	}
	return -1
}

// firstDuplicateByTable hashes with a fresh seed, so that nobody can choose values that collide.
func firstDuplicateByTable(values []string) int {
	var table [foldSlots]uint16 // index + 1 of the value in the slot; 0 is free
	seed := maphash.MakeSeed()
	for i, value := range values {
		slot := maphash.String(seed, value) % foldSlots
		for table[slot] != 0 {
			if values[table[slot]-1] == value {
				return i
			}
			slot = (slot + 1) % foldSlots
		}
		table[slot] = uint16(i + 1)
	}
	return -1
}
