"""Publish counts of a Spark table from the cluster where it is: cells leave it, never rows of people.

    spark-submit --master yarn examples/release_spark.py people region=north,south,islands id

``people`` is a table of the session's catalogue, or parquet.`/data/people`. Without arguments a small table
is made up. Locally, ``python examples/release_spark.py`` needs Java 17 and ``pip install pyspark``.
"""

import sys

from pyspark.sql import SparkSession

import ringfence as rf

spark = SparkSession.builder.getOrCreate()
if len(sys.argv) > 1:
    name, given, person = sys.argv[1:]
    people = spark.table(name)
else:
    rows = [(number, ("north", "south")[number % 3 == 0], number % 90) for number in range(3000)]
    people = spark.createDataFrame(rows, "id long, region string, age long")
    given, person = "region=north,south", "id"

column, _, values = given.partition("=")
table = rf.release_counts(
    people,
    by=column,
    domain={column: values.split(",")},  # public, whatever occurs in the data
    missing="category",
    person=person,
    epsilon=1.0,
    delta=1e-6,
)
print(table)  # the table, and the sentence that belongs under it
for sentence in table.private:
    print("Not to be published:", sentence)
