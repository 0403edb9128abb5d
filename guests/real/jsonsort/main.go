// Command jsonsort sorts a JSON array of objects: jsonsort [FIELD] <INPUT >OUTPUT
//
// It reads an array of objects from standard input, sorts it by FIELD ("name" unless told), and
// writes it to standard output, one object a line. Objects without the field come first, then
// numbers, then strings, then anything else; equals keep their order.
//
// The exit code is 0, 1 if the input cannot be read or is not an array of objects, 2 if the
// arguments make no sense.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
)

type object = map[string]any

func main() {
	field := "name"
	switch len(os.Args) {
	case 0, 1:
	case 2:
		field = os.Args[1]
	default:
		fmt.Fprintln(os.Stderr, "usage: jsonsort [FIELD]")
		os.Exit(2)
	}
	if err := sortObjects(os.Stdin, os.Stdout, field); err != nil {
		fmt.Fprintln(os.Stderr, "jsonsort:", err)
		os.Exit(1)
	}
}

func sortObjects(in io.Reader, out io.Writer, field string) error {
	var objects []object
	if err := json.NewDecoder(bufio.NewReader(in)).Decode(&objects); err != nil {
		return err
	}
	slices.SortStableFunc(objects, func(a, b object) int { return compare(a[field], b[field]) })
	return write(out, objects)
}

func compare(a, b any) int {
	if order := cmp.Compare(rank(a), rank(b)); order != 0 {
		return order
	}
	switch a := a.(type) {
	case float64:
		return cmp.Compare(a, b.(float64))
	case string:
		return cmp.Compare(a, b.(string))
	}
	return 0
}

// rank orders values of different types.
func rank(value any) int {
	switch value.(type) {
	case nil:
		return 0
	case float64:
		return 1
	case string:
		return 2
	}
	return 3
}

func write(out io.Writer, objects []object) error {
	buffered := bufio.NewWriter(out)
	separator := "[\n"
	for _, object := range objects {
		line, err := json.Marshal(object)
		if err != nil {
			return err
		}
		buffered.WriteString(separator)
		buffered.Write(line)
		separator = ",\n"
	}
	if len(objects) == 0 {
		buffered.WriteString("[")
	}
	buffered.WriteString("\n]\n")
	// A bufio.Writer keeps its first error until here.
	return buffered.Flush()
}
